package kubetest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/seamark/seamark/cluster"
)

// kubeDNSDir is the directory of kube-dns's manifests, relative to
// deploy/kubernetes.
const kubeDNSDir = "../kube-dns/"

func kubeDNSDeployment(t *testing.T, form string) *appsv1.Deployment {
	return object[appsv1.Deployment](t, kubeDNSDir+form+"/deployment.yaml", "Deployment")
}

// stockKubeDNS returns the Deployment of Kubernetes 1.22 for the domain
// cluster.local, without the labels that only its addon manager reads.
func stockKubeDNS() *appsv1.Deployment {
	selector := map[string]string{"k8s-app": "kube-dns"}
	tenth, zero, no, yes, optional := intstr.FromString("10%"), intstr.FromInt32(0), false, true, true
	user, group := int64(1001), int64(65534)
	port := func(number int32, name string, p corev1.Protocol) corev1.ContainerPort {
		return corev1.ContainerPort{ContainerPort: number, Name: name, Protocol: p}
	}
	get := func(path string, port int32) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTP}}
	}
	live := func(path string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: get(path, 10054), InitialDelaySeconds: 60, TimeoutSeconds: 5, SuccessThreshold: 1, FailureThreshold: 5}
	}
	needs := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	alone := &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, RunAsUser: &user, RunAsGroup: &user}
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: "kube-system",
			Labels: map[string]string{"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true"}},
		Spec: appsv1.DeploymentSpec{
			Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &tenth, MaxUnavailable: &zero}},
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector, Annotations: map[string]string{"prometheus.io/port": "10054", "prometheus.io/scrape": "true"}},
				Spec: corev1.PodSpec{
					PriorityClassName: "system-cluster-critical", ServiceAccountName: "kube-dns", DNSPolicy: corev1.DNSDefault,
					SecurityContext: &corev1.PodSecurityContext{
						SeccompProfile:     &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
						SupplementalGroups: []int64{group}, FSGroup: &group,
					},
					Affinity:     kubeadmDeployment().Spec.Template.Spec.Affinity,
					Tolerations:  []corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}},
					NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
					Volumes: []corev1.Volume{{Name: "kube-dns-config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: "kube-dns"}, Optional: &optional}}}},
					Containers: []corev1.Container{{
						Name: "kubedns", Image: "k8s-dns-kube-dns",
						Args: []string{"--domain=cluster.local.", "--dns-port=10053", "--config-dir=/kube-dns-config", "--v=2"},
						Env:  []corev1.EnvVar{{Name: "PROMETHEUS_PORT", Value: "10055"}},
						Resources: corev1.ResourceRequirements{
							Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("170Mi")}, Requests: needs("100m", "70Mi")},
						Ports:         []corev1.ContainerPort{port(10053, "dns-local", "UDP"), port(10053, "dns-tcp-local", "TCP"), port(10055, "metrics", "TCP")},
						LivenessProbe: live("/healthcheck/kubedns"), ReadinessProbe: &corev1.Probe{ProbeHandler: get("/readiness", 8081), InitialDelaySeconds: 3, TimeoutSeconds: 5},
						VolumeMounts: []corev1.VolumeMount{{Name: "kube-dns-config", MountPath: "/kube-dns-config"}}, SecurityContext: alone,
					}, {
						Name: "dnsmasq", Image: "k8s-dns-dnsmasq-nanny",
						Args: []string{"-v=2", "-logtostderr", "-configDir=/etc/k8s/dns/dnsmasq-nanny", "-restartDnsmasq=true", "--", "-k", "--cache-size=1000", "--no-negcache",
							"--dns-loop-detect", "--log-facility=-", "--server=/cluster.local/127.0.0.1#10053", "--server=/in-addr.arpa/127.0.0.1#10053", "--server=/ip6.arpa/127.0.0.1#10053"},
						Resources:     corev1.ResourceRequirements{Requests: needs("150m", "20Mi")},
						Ports:         []corev1.ContainerPort{port(53, "dns", "UDP"), port(53, "dns-tcp", "TCP")},
						LivenessProbe: live("/healthcheck/dnsmasq"),
						VolumeMounts:  []corev1.VolumeMount{{Name: "kube-dns-config", MountPath: "/etc/k8s/dns/dnsmasq-nanny"}},
						SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{
							Drop: []corev1.Capability{"all"}, Add: []corev1.Capability{"NET_BIND_SERVICE", "SETGID"}}},
					}, {
						Name: "sidecar", Image: "k8s-dns-sidecar",
						Args: []string{"--v=2", "--logtostderr", "--probe=kubedns,127.0.0.1:10053,kubernetes.default.svc.cluster.local,5,SRV",
							"--probe=dnsmasq,127.0.0.1:53,kubernetes.default.svc.cluster.local,5,SRV"},
						Resources: corev1.ResourceRequirements{Requests: needs("10m", "20Mi")},
						Ports:     []corev1.ContainerPort{port(10054, "metrics", "TCP")}, LivenessProbe: live("/metrics"), SecurityContext: alone,
					}},
				},
			},
		},
	}
}

// afterPatches returns kube-dns's Deployment with some of our patches, which an
// operator applies one by one.
func afterPatches(t *testing.T, names ...string) *appsv1.Deployment {
	t.Helper()
	doc := must(json.Marshal(stockKubeDNS()))(t)
	for _, name := range names {
		text := must(os.ReadFile(filepath.Join(deployDir, kubeDNSDir, "patches", name+".yaml")))(t)
		doc = must(strategicpatch.StrategicMergePatch(doc, must(yaml.YAMLToJSON(text))(t), appsv1.Deployment{}))(t)
	}
	return decode[appsv1.Deployment](t, doc)
}

// The Deployments equal Kubernetes' own with our patches.
func TestDeploymentsEqualKubeDNS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		form    string
		patches []string
	}{
		{"three-container", []string{"kubedns", "dnsmasq", "sidecar"}},
		{"one-container", []string{"kubedns", "dnsmasq", "sidecar", "one-container"}},
		{"one-container", []string{"one-container"}},
	} {
		got, want := kubeDNSDeployment(t, c.form), afterPatches(t, c.patches...)
		if !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.form, must(yaml.Marshal(got))(t), must(yaml.Marshal(want))(t))
		}
	}
	if files := must(filepath.Glob(filepath.Join(deployDir, kubeDNSDir, "patches", "*")))(t); len(files) != 4 {
		t.Errorf("patches: got %v, want the 4 that the tests compare", files)
	}
}

// The single container replaces the three: ports, probes and labels of the pod
// are the same.
func TestSingleContainerReplacesThree(t *testing.T) {
	t.Parallel()
	three, one := kubeDNSDeployment(t, "three-container"), kubeDNSDeployment(t, "one-container")
	if n := len(one.Spec.Template.Spec.Containers); n != 1 {
		t.Fatalf("got %d containers, want 1", n)
	}
	before, now := &three.Spec.Template.Spec, &one.Spec.Template.Spec
	kubedns, dnsmasq, container := before.Containers[0], before.Containers[1], now.Containers[0]
	if container.Name != kubedns.Name || !slices.Equal(container.Command, kubedns.Command) || !equality.Semantic.DeepEqual(container.Env, kubedns.Env) ||
		!equality.Semantic.DeepEqual(container.Resources, kubedns.Resources) || !equality.Semantic.DeepEqual(container.ReadinessProbe, kubedns.ReadinessProbe) {
		t.Errorf("container: got %+v, want name, command, environment, resources and readiness probe of %+v", container, kubedns)
	}
	args := slices.Clone(kubedns.Args)
	args[slices.Index(args, "--dns-port=10053")] = "--dns-port=53"
	args = append(args, "--admin=localhost:8053")
	if !slices.Equal(container.Args, args) {
		t.Errorf("args: got %q, want %q", container.Args, args)
	}
	if want := append(slices.Clone(dnsmasq.Ports), kubedns.Ports[2]); !equality.Semantic.DeepEqual(container.Ports, want) {
		t.Errorf("ports: got %v, want %v", container.Ports, want)
	}
	if live := container.LivenessProbe; live.HTTPGet.Path != "/metrics" || live.HTTPGet.Port.String() != container.Env[0].Value {
		t.Errorf("liveness probe: got %+v, want the page of metrics", live.HTTPGet)
	}
	if at := one.Spec.Template.Annotations["prometheus.io/port"]; at != container.Env[0].Value {
		t.Errorf("annotation prometheus.io/port: got %s, want %s", at, container.Env[0].Value)
	}
	s, pod := container.SecurityContext, now.SecurityContext
	if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !*s.RunAsNonRoot || *s.RunAsUser != 65532 || *s.RunAsGroup != 65532 ||
		!equality.Semantic.DeepEqual(s.Capabilities, &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}, Drop: []corev1.Capability{"ALL"}}) ||
		!equality.Semantic.DeepEqual(pod.Sysctls, []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}) ||
		!equality.Semantic.DeepEqual(pod.SeccompProfile, before.SecurityContext.SeccompProfile) {
		t.Errorf("security contexts: got %+v and %+v, want user 65532 with NET_BIND_SERVICE only and the sysctl", s, pod)
	}
	// The rest of the pod and of the Deployment is equal.
	mount := &now.Containers[0].VolumeMounts[0]
	if !mount.ReadOnly {
		t.Errorf("volume mount: got %+v, want it read-only", mount)
	}
	mount.ReadOnly = false
	if !equality.Semantic.DeepEqual(now.Containers[0].VolumeMounts, kubedns.VolumeMounts) {
		t.Errorf("volume mounts: got %+v, want %+v", now.Containers[0].VolumeMounts, kubedns.VolumeMounts)
	}
	now.Containers, now.SecurityContext = before.Containers, before.SecurityContext
	one.Spec.Template.Annotations["prometheus.io/port"] = three.Spec.Template.Annotations["prometheus.io/port"]
	if !equality.Semantic.DeepEqual(one, three) {
		t.Errorf("got\n%s\nwant\n%s", must(yaml.Marshal(one))(t), must(yaml.Marshal(three))(t))
	}
}

func TestKubeDNSBase(t *testing.T) {
	t.Parallel()
	service := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: "kube-system", Labels: map[string]string{
			"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "KubeDNS"}},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.10", Selector: stockKubeDNS().Spec.Template.Labels,
			Ports: []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP}},
		},
	}
	if got := object[corev1.Service](t, kubeDNSDir+"base/service.yaml", "Service"); !equality.Semantic.DeepEqual(got, service) {
		t.Errorf("base/service.yaml: got %+v, want %+v", got, service)
	}
	account := object[corev1.ServiceAccount](t, kubeDNSDir+"base/account.yaml", "ServiceAccount")
	config := object[corev1.ConfigMap](t, kubeDNSDir+"base/configmap.yaml", "ConfigMap")
	for _, form := range []string{"three-container", "one-container"} {
		pod := kubeDNSDeployment(t, form).Spec.Template.Spec
		if pod.ServiceAccountName != account.Name || pod.Volumes[0].ConfigMap.Name != config.Name || account.Namespace+config.Namespace != "kube-systemkube-system" || len(config.Data) > 0 {
			t.Errorf("%s: got account %s and ConfigMap %s, want %s and the empty %s in kube-system", form, pod.ServiceAccountName, pod.Volumes[0].ConfigMap.Name, account.Name, config.Name)
		}
		k := readKustomization(t, kubeDNSDir+form)
		if !slices.Equal(k.Resources, []string{"../base", "../rbac", "deployment.yaml"}) || k.Images[0]["name"] != pod.Containers[0].Image {
			t.Errorf("%s: got kustomization %+v, want base, rbac, deployment.yaml and the image of the container", form, k)
		}
	}
	for _, dir := range []string{"base", "rbac", "components/config-map"} {
		k := readKustomization(t, kubeDNSDir+dir)
		for _, file := range must(filepath.Glob(filepath.Join(deployDir, kubeDNSDir, dir, "*.yaml")))(t) {
			if name := filepath.Base(file); name != "kustomization.yaml" && !slices.Contains(k.Resources, name) {
				t.Errorf("%s: resources of the kustomization: got %v, want %s among them", dir, k.Resources, name)
			}
		}
	}
}

// The account of kube-dns may watch the resources that the server watches, and no
// others.
func TestKubeDNSAccountMayWatch(t *testing.T) {
	t.Parallel()
	const roleName = "seamark-kube-dns"
	docs := documents(t, kubeDNSDir+"rbac/rbac.yaml")
	role := decode[rbacv1.ClusterRole](t, docs["ClusterRole"])
	binding := decode[rbacv1.ClusterRoleBinding](t, docs["ClusterRoleBinding"])
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "kube-dns", Namespace: "kube-system"}}
	if binding.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roleName}) || role.Name != roleName || binding.Name != roleName ||
		!slices.Equal(binding.Subjects, subject) {
		t.Errorf("got role %+v and binding %+v, want %s for the account kube-dns", role, binding, roleName)
	}
	may := func(role *rbacv1.ClusterRole) (kinds []string) {
		for _, rule := range role.Rules {
			if !slices.Equal(rule.Verbs, []string{"list", "watch"}) || len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
				t.Errorf("rule: got %+v, want the verbs list and watch for all objects", rule)
			}
			kinds = append(kinds, rule.Resources...)
		}
		slices.Sort(kinds)
		return kinds
	}
	needs := func(options ...cluster.Options) (kinds []string) {
		for _, o := range options {
			for _, kind := range o.Kinds() {
				kinds = append(kinds, kind.String())
			}
		}
		slices.Sort(kinds)
		return kinds
	}
	if got, want := may(role), needs(cluster.Options{}); !slices.Equal(got, want) {
		t.Errorf("permissions to watch: got %s, want %s", got, want)
	}
	federated := patched[rbacv1.ClusterRole](t, "../"+kubeDNSDir+"components/federations", docs["ClusterRole"])
	if got, want := may(federated), needs(cluster.Options{}, cluster.Options{Nodes: true}); !slices.Equal(got, want) {
		t.Errorf("permissions to watch with federations: got %s, want %s", got, want)
	}
	docs = documents(t, kubeDNSDir+"components/config-map/rbac.yaml")
	named, bound := decode[rbacv1.Role](t, docs["Role"]), decode[rbacv1.RoleBinding](t, docs["RoleBinding"])
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"kube-dns"}, Verbs: []string{"get", "list", "watch"}}}
	if !equality.Semantic.DeepEqual(named.Rules, want) || named.Namespace != "kube-system" || bound.Namespace != "kube-system" ||
		bound.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: named.Name}) || !slices.Equal(bound.Subjects, subject) {
		t.Errorf("got role %+v and binding %+v, want get, list and watch of the ConfigMap kube-dns", named, bound)
	}
}

// kubeDNSForms returns the Deployments, without and with components.
func kubeDNSForms(t *testing.T) map[string]*appsv1.Deployment {
	doc := documents(t, kubeDNSDir+"one-container/deployment.yaml")["Deployment"]
	return map[string]*appsv1.Deployment{
		"three-container": kubeDNSDeployment(t, "three-container"),
		"one-container":   kubeDNSDeployment(t, "one-container"),
		"sidecar":         patched[appsv1.Deployment](t, "../"+kubeDNSDir+"components/sidecar", doc),
		"config-map":      patchedWithResources(t, kubeDNSDir+"components/config-map", doc),
	}
}

// patchedWithResources is patched for a component that also has resources.
func patchedWithResources(t *testing.T, component string, doc []byte) *appsv1.Deployment {
	t.Helper()
	d := patched[appsv1.Deployment](t, "../"+component, doc)
	if k := readKustomization(t, component); !slices.Equal(k.Resources, []string{"rbac.yaml"}) {
		t.Errorf("%s: got kustomization %+v, want the resource rbac.yaml", component, k)
	}
	return d
}

// The binary accepts each container's command line.
func TestKubeDNSCommandLines(t *testing.T) {
	t.Parallel()
	ran := 0
	for form, d := range kubeDNSForms(t) {
		for _, c := range d.Spec.Template.Spec.Containers {
			if c.Command[0] != "/seamark" {
				t.Errorf("%s: container %s: got command %q, want /seamark", form, c.Name, c.Command)
			}
			dry := map[string]string{"kube-dns": "--print-corefile", "dnsmasq-nanny": "--print-corefile", "sidecar": "--version"}[c.Command[1]]
			// The arguments after -- are dnsmasq's, so the dry-run flag comes
			// first.
			line := append([]string{c.Command[1], dry}, c.Args...)
			p := exec.CommandContext(t.Context(), must(os.Executable())(t), line...)
			p.Env = append(os.Environ(), "SEAMARK_TEST_MAIN=1")
			for _, e := range c.Env {
				p.Env = append(p.Env, e.Name+"="+e.Value)
			}
			if out, err := p.CombinedOutput(); err != nil || len(out) == 0 {
				t.Errorf("%s: %q: got error %v, want none\n%s", form, line, err, out)
			}
			ran++
		}
	}
	if ran != 7 {
		t.Errorf("command lines checked: got %d, want 7", ran)
	}
}

// The files that the README names exist.
func TestKubeDNSReadme(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(deployDir, kubeDNSDir)
	text := string(must(os.ReadFile(filepath.Join(dir, "README.md")))(t))
	seen := 0
	for _, at := range regexp.MustCompile(`(?: -f | -k |--patch-file |\]\(|resources: \[\.\./|components: \[\.\./|\| .)((?:[a-z-]+/)+[a-z.-]*|[a-z-]+\.(?:yaml|md))`).FindAllStringSubmatch(text, -1) {
		seen++
		if _, err := os.Stat(filepath.Join(dir, at[1])); err != nil {
			t.Errorf("README.md names %s: got error %v, want a file", at[1], err)
		}
	}
	if seen < 10 {
		t.Errorf("file names in README.md: got %d, want at least 10", seen)
	}
}

// kubectl builds the forms. The tests above check the files without kubectl,
// which is not installed on every machine.
func TestKubeDNSKustomize(t *testing.T) {
	t.Parallel()
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl, which builds the kustomizations, is not installed")
	}
	dir := filepath.Join(deployDir, kubeDNSDir)
	try := must(filepath.Abs(filepath.Join(dir, "one-container")))(t)
	for _, form := range []string{"three-container", "one-container", "one-container sidecar", "one-container config-map", "one-container federations", "one-container sidecar config-map federations"} {
		words := strings.Fields(form)
		at := t.TempDir()
		relative := func(path string) string { return must(filepath.Rel(at, filepath.Join(filepath.Dir(try), path)))(t) }
		k := "resources: [" + relative(words[0]) + "]\n"
		if len(words) > 1 {
			var components []string
			for _, c := range words[1:] {
				components = append(components, relative("components/"+c))
			}
			k += "components: [" + strings.Join(components, ", ") + "]\n"
		}
		k += "images: [{name: registry.invalid/seamark, newName: registry.example/seamark, newTag: v1}]\n"
		if err := os.WriteFile(filepath.Join(at, "kustomization.yaml"), []byte(k), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", at).CombinedOutput()
		if err != nil || strings.Contains(string(out), "registry.invalid") || !strings.Contains(string(out), "image: registry.example/seamark:v1") {
			t.Errorf("kubectl kustomize %s: got error %v, want none\n%s", form, err, out)
		}
	}
}
