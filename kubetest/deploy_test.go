package kubetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/seamark/seamark/cluster"
)

const deployDir = "../deploy/kubernetes"

// documents returns the objects of a file below deploy/, as JSON, by kind.
func documents(t *testing.T, file string) map[string][]byte {
	t.Helper()
	text := must(os.ReadFile(filepath.Join(deployDir, file)))(t)
	docs := map[string][]byte{}
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var head metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &head); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if docs[head.Kind] != nil {
			t.Fatalf("%s: got two objects of kind %s, want one of each kind", file, head.Kind)
		}
		docs[head.Kind] = must(yaml.YAMLToJSON(doc))(t)
	}
	return docs
}

// object decodes one object of a file and rejects unknown fields.
func object[T any](t *testing.T, file, kind string) *T {
	t.Helper()
	doc := documents(t, file)[kind]
	if doc == nil {
		t.Fatalf("%s: got no object of kind %s, want one", file, kind)
	}
	return decode[T](t, doc)
}

func decode[T any](t *testing.T, doc []byte) *T {
	t.Helper()
	o := new(T)
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	if err := d.Decode(o); err != nil {
		t.Fatal(err)
	}
	return o
}

func deployment(t *testing.T) *appsv1.Deployment {
	return object[appsv1.Deployment](t, "base/deployment.yaml", "Deployment")
}

// The manifest that kubeadm writes for CoreDNS. Deliberate differences are
// applied to it first; there must be no others.
func TestDeploymentEqualsKubeadm(t *testing.T) {
	t.Parallel()
	d := deployment(t)
	if _, ok := d.Labels["k8s-app"]; ok {
		t.Errorf("got label k8s-app=%s, want none: kubeadm counts Deployments with it", d.Labels["k8s-app"])
	}
	const own = "app.kubernetes.io/name"
	for name, labels := range map[string]map[string]string{
		"the Deployment": d.Labels, "the selector": d.Spec.Selector.MatchLabels, "the template": d.Spec.Template.Labels,
	} {
		if labels[own] != "seamark" {
			t.Errorf("%s: label %s: got %q, want seamark", name, own, labels[own])
		}
		delete(labels, own)
	}
	pod, container := &d.Spec.Template.Spec, &d.Spec.Template.Spec.Containers[0]
	for at, got := range map[*string]string{&d.Name: "seamark", &pod.ServiceAccountName: "seamark", &container.Image: "registry.invalid/seamark"} {
		if *at != got {
			t.Errorf("got %q, want %q", *at, got)
		}
		*at = "coredns"
	}
	// The pod is restricted as far as the image permits.
	security := pod.SecurityContext
	if security == nil || security.RunAsNonRoot == nil || !*security.RunAsNonRoot || security.SeccompProfile == nil ||
		security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("got security context %v, want runAsNonRoot and the seccomp profile RuntimeDefault", security)
	}
	pod.SecurityContext = nil
	d.Labels = map[string]string{"k8s-app": "kube-dns"}
	if want := kubeadmDeployment(); !equality.Semantic.DeepEqual(d, want) {
		t.Errorf("got\n%s\nwant\n%s", must(yaml.Marshal(d))(t), must(yaml.Marshal(want))(t))
	}
}

func kubeadmDeployment() *appsv1.Deployment {
	labels := map[string]string{"k8s-app": "kube-dns"}
	replicas, one, no, yes := int32(2), intstr.FromInt32(1), false, true
	port := func(number int32, name string, p corev1.Protocol) corev1.ContainerPort {
		return corev1.ContainerPort{ContainerPort: number, Name: name, Protocol: p}
	}
	probe := func(path, port string) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(port), Scheme: corev1.URISchemeHTTP}}
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "coredns", Namespace: "kube-system", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &one},
			},
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					PriorityClassName:  "system-cluster-critical",
					ServiceAccountName: "coredns",
					Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
						PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
							Weight: 100,
							PodAffinityTerm: corev1.PodAffinityTerm{
								LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
									{Key: "k8s-app", Operator: metav1.LabelSelectorOpIn, Values: []string{"kube-dns"}},
								}},
								TopologyKey: "kubernetes.io/hostname",
							},
						}},
					}},
					Tolerations: []corev1.Toleration{
						{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
						{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
					},
					NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
					Containers: []corev1.Container{{
						Name: "coredns", Image: "coredns", ImagePullPolicy: corev1.PullIfNotPresent,
						Resources: corev1.ResourceRequirements{
							Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("170Mi")},
							Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("70Mi")},
						},
						Args:         []string{"-conf", "/etc/coredns/Corefile", "-admin=localhost:8053"},
						VolumeMounts: []corev1.VolumeMount{{Name: "config-volume", MountPath: "/etc/coredns", ReadOnly: true}},
						Ports: []corev1.ContainerPort{
							port(53, "dns", corev1.ProtocolUDP), port(53, "dns-tcp", corev1.ProtocolTCP), port(9153, "metrics", corev1.ProtocolTCP),
							port(8080, "liveness-probe", corev1.ProtocolTCP), port(8181, "readiness-probe", corev1.ProtocolTCP),
						},
						LivenessProbe: &corev1.Probe{
							ProbeHandler:        probe("/health", "liveness-probe"),
							InitialDelaySeconds: 60, TimeoutSeconds: 5, SuccessThreshold: 1, FailureThreshold: 5,
						},
						ReadinessProbe: &corev1.Probe{ProbeHandler: probe("/ready", "readiness-probe")},
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: &no,
							Capabilities:             &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}, Drop: []corev1.Capability{"ALL"}},
							ReadOnlyRootFilesystem:   &yes,
						},
					}},
					DNSPolicy: corev1.DNSDefault,
					Volumes: []corev1.Volume{{Name: "config-volume", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: "coredns"},
						Items:                []corev1.KeyToPath{{Key: "Corefile", Path: "Corefile"}},
					}}}},
				},
			},
		},
	}
}

func TestServiceEqualsKubeadm(t *testing.T) {
	t.Parallel()
	port := func(name string, number int32, p corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, Protocol: p, TargetPort: intstr.FromInt32(number)}
	}
	want := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "kube-dns", Namespace: "kube-system",
			Annotations: map[string]string{"prometheus.io/port": "9153", "prometheus.io/scrape": "true"},
			Labels:      map[string]string{"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.10",
			Selector:  map[string]string{"k8s-app": "kube-dns"},
			Ports: []corev1.ServicePort{
				port("dns", 53, corev1.ProtocolUDP), port("dns-tcp", 53, corev1.ProtocolTCP), port("metrics", 9153, corev1.ProtocolTCP),
			},
		},
	}
	got := object[corev1.Service](t, "base/service.yaml", "Service")
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", must(yaml.Marshal(got))(t), must(yaml.Marshal(want))(t))
	}
	d := deployment(t)
	for key, value := range got.Spec.Selector {
		if d.Spec.Template.Labels[key] != value {
			t.Errorf("label %s of the pods: got %q, want %q, which the Service selects", key, d.Spec.Template.Labels[key], value)
		}
	}
}

// The Corefile is equal to kubeadm's in testdata/corefile.
func TestCorefileEqualsKubeadm(t *testing.T) {
	t.Parallel()
	want := must(os.ReadFile("../testdata/corefile/kubeadm/Corefile"))(t)
	config := object[corev1.ConfigMap](t, "base/corefile.yaml", "ConfigMap")
	volume := deployment(t).Spec.Template.Spec.Volumes[0].ConfigMap
	if config.Name != volume.Name || config.Data[volume.Items[0].Key] != string(want) {
		t.Errorf("got\n%s\nwant\n%s", config.Data["Corefile"], want)
	}
}

// An account may watch the resources that the server watches, and no others.
func TestAccountMayWatch(t *testing.T) {
	t.Parallel()
	docs := documents(t, "base/rbac.yaml")
	account := decode[corev1.ServiceAccount](t, docs["ServiceAccount"])
	role := decode[rbacv1.ClusterRole](t, docs["ClusterRole"])
	binding := decode[rbacv1.ClusterRoleBinding](t, docs["ClusterRoleBinding"])
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}
	if binding.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}) ||
		!slices.Equal(binding.Subjects, subject) || deployment(t).Spec.Template.Spec.ServiceAccountName != account.Name {
		t.Errorf("got a binding of %v to %v, want the role %s for the pods' account %v", binding.Subjects, binding.RoleRef, role.Name, subject)
	}
	for _, o := range []metav1.Object{account, role, binding} {
		if o.GetName() != "seamark" {
			t.Errorf("name of %T: got %s, want seamark", o, o.GetName())
		}
	}
	check := func(role *rbacv1.ClusterRole, o cluster.Options) {
		t.Helper()
		var may, needs []string
		for _, rule := range role.Rules {
			if !slices.Equal(rule.Verbs, []string{"list", "watch"}) || len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
				t.Errorf("rule of the role: got %+v, want list and watch of resources", rule)
			}
			may = append(may, rule.Resources...)
		}
		for _, kind := range o.Kinds() {
			needs = append(needs, kind.String())
		}
		slices.Sort(may)
		slices.Sort(needs)
		if !slices.Equal(may, needs) {
			t.Errorf("resources of the role: got %s, want what the server watches: %s", may, needs)
		}
	}
	check(role, cluster.Options{})
	check(patched[rbacv1.ClusterRole](t, "pods-verified", docs["ClusterRole"]), cluster.Options{Pods: true})

	low := patched[appsv1.Deployment](t, "low-port", documents(t, "base/deployment.yaml")["Deployment"])
	nonRoot := true
	want := &corev1.PodSecurityContext{
		RunAsNonRoot: &nonRoot, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}},
	}
	if !equality.Semantic.DeepEqual(low.Spec.Template.Spec.SecurityContext, want) {
		t.Errorf("security context: got %+v, want %+v", low.Spec.Template.Spec.SecurityContext, want)
	}
}

// The account may read the ConfigMap that the component names, and no other.
func TestAccountMayWatchHosts(t *testing.T) {
	t.Parallel()
	k := readKustomization(t, "components/hosts-configmap")
	docs := documents(t, "components/hosts-configmap/"+k.Resources[0])
	role := decode[rbacv1.Role](t, docs["Role"])
	binding := decode[rbacv1.RoleBinding](t, docs["RoleBinding"])
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"custom-hosts"}, Verbs: []string{"get", "list", "watch"}}}
	account := deployment(t).Spec.Template.Spec.ServiceAccountName
	if k.Kind != "Component" || len(k.Resources) != 1 || !equality.Semantic.DeepEqual(role.Rules, want) ||
		binding.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}) ||
		!slices.Equal(binding.Subjects, []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: role.Namespace}}) {
		t.Errorf("got kustomization %+v, role %+v, binding %+v; want the binding to grant the role to the account", k, role, binding)
	}
}

// A kustomization has the fields that these files use.
type kustomization struct {
	metav1.TypeMeta `json:",inline"`
	Resources       []string            `json:"resources"`
	Components      []string            `json:"components"`
	Images          []map[string]string `json:"images"`
	Patches         []struct {
		Target struct{ Group, Version, Kind, Name string } `json:"target"`
		Patch  string                                      `json:"patch"`
		Path   string                                      `json:"path"`
	} `json:"patches"`
}

func readKustomization(t *testing.T, dir string) *kustomization {
	t.Helper()
	text := must(os.ReadFile(filepath.Join(deployDir, dir, "kustomization.yaml")))(t)
	return decode[kustomization](t, must(yaml.YAMLToJSON(text))(t))
}

// patched returns an object with a component's patch for it.
func patched[T any](t *testing.T, component string, doc []byte) *T {
	t.Helper()
	var head metav1.PartialObjectMetadata
	if err := json.Unmarshal(doc, &head); err != nil {
		t.Fatal(err)
	}
	k := readKustomization(t, "components/"+component)
	target := k.Patches[0].Target
	group := target.Version
	if target.Group != "" {
		group = target.Group + "/" + target.Version
	}
	if k.Kind != "Component" || len(k.Patches) != 1 || group != head.APIVersion || target.Kind != head.Kind || target.Name != head.Name {
		t.Fatalf("%s: got %+v, want a Component that patches %s %s", component, k, head.Kind, head.Name)
	}
	patch := must(jsonpatch.DecodePatch(must(yaml.YAMLToJSON([]byte(k.Patches[0].Patch)))(t)))(t)
	return decode[T](t, must(patch.Apply(doc))(t))
}

func TestKustomization(t *testing.T) {
	t.Parallel()
	k := readKustomization(t, "base")
	files := must(filepath.Glob(filepath.Join(deployDir, "base", "*.yaml")))(t)
	for _, file := range files {
		if name := filepath.Base(file); name != "kustomization.yaml" && !slices.Contains(k.Resources, name) {
			t.Errorf("resources: got %v, want %s among them", k.Resources, name)
		}
	}
	if len(k.Resources) != len(files)-1 || k.Kind != "Kustomization" {
		t.Errorf("got %+v, want a Kustomization of %d resources", k, len(files)-1)
	}
	if len(k.Images) != 1 || k.Images[0]["name"] != deployment(t).Spec.Template.Spec.Containers[0].Image {
		t.Errorf("images: got %v, want that of the Deployment alone", k.Images)
	}
}

// The examples name directories with a kustomization and replace the image.
func TestKustomizationExamples(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"example", kubeDNSDir + "example"} {
		k := readKustomization(t, dir)
		for kind, paths := range map[string][]string{"Kustomization": k.Resources, "Component": k.Components} {
			if len(paths) == 0 {
				t.Errorf("%s: got no paths of kind %s, want some", dir, kind)
			}
			for _, path := range paths {
				if got := readKustomization(t, filepath.Join(dir, path)).Kind; got != kind {
					t.Errorf("%s: %s: got kind %q, want %q", dir, path, got, kind)
				}
			}
		}
		if len(k.Images) != 1 || k.Images[0]["name"] != deployment(t).Spec.Template.Spec.Containers[0].Image {
			t.Errorf("%s: got images %v, want that of the Deployment", dir, k.Images)
		}
	}
}

// The Dockerfile and the Deployment agree on the user, the entry point and the ports.
// The test of tools/image has the same expectations of make image.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := string(must(os.ReadFile("../Dockerfile"))(t))
	for _, want := range []string{"\nFROM scratch\n", "\nUSER 65532:65532\n", "\nENTRYPOINT [\"/seamark\"]\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %q", strings.TrimSpace(want))
		}
	}
	for _, p := range deployment(t).Spec.Template.Spec.Containers[0].Ports {
		if want := fmt.Sprintf(" %d/%s", p.ContainerPort, strings.ToLower(string(p.Protocol))); !strings.Contains(text, want) {
			t.Errorf("%s is not exposed", want)
		}
	}
}
