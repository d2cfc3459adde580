package kubetest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/chaintest"
)

// skyDNSDir is the directory of the manifests of the first kube-dns, relative to
// deploy/kubernetes.
const skyDNSDir = "../skydns/"

func skyDNSPod(t *testing.T) corev1.PodSpec {
	return object[appsv1.Deployment](t, skyDNSDir+"deployment.yaml", "Deployment").Spec.Template.Spec
}

// From outside, the pod equals the ReplicationController's: four containers with
// their arguments, ports and probes, the labels, the Service.
func TestSkyDNSManifests(t *testing.T) {
	t.Parallel()
	d := object[appsv1.Deployment](t, skyDNSDir+"deployment.yaml", "Deployment")
	pod := d.Spec.Template.Spec
	get := func(path string, port int) string { return fmt.Sprintf("%s:%d", path, port) }
	images, args, probes, ports := []string{}, map[string][]string{}, []string{}, []string{}
	for _, c := range pod.Containers {
		images = append(images, c.Name+" "+c.Image)
		args[c.Name] = c.Args
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if p != nil {
				probes = append(probes, c.Name+" "+get(p.HTTPGet.Path, p.HTTPGet.Port.IntValue()))
			}
		}
		for _, p := range c.Ports {
			ports = append(ports, fmt.Sprintf("%s %s %d", c.Name, p.Protocol, p.ContainerPort))
		}
		s, capabilities := c.SecurityContext, &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
		if c.Name != "etcd" { // exec fails without the file capability of the binary
			capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"}
		}
		if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !equality.Semantic.DeepEqual(s.Capabilities, capabilities) {
			t.Errorf("%s: got security context %+v, want capabilities %+v, a read-only root and no escalation", c.Name, s, capabilities)
		}
	}
	for _, c := range []struct{ got, want []string }{
		{images, []string{"etcd registry.invalid/etcd", "kube2sky registry.invalid/seamark", "skydns registry.invalid/seamark", "healthz registry.invalid/seamark"}},
		{args["kube2sky"], []string{"--domain=cluster.local"}},
		{args["skydns"], []string{"-machines=http://127.0.0.1:4001", "-addr=0.0.0.0:53", "-ns-rotate=false", "-domain=cluster.local.", "-admin=localhost:8053"}},
		{args["healthz"], []string{"-cmd=nslookup kubernetes.default.svc.cluster.local 127.0.0.1 >/dev/null", "-port=8080"}},
		{probes, []string{"kube2sky /healthz:8080", "kube2sky /readiness:8081"}},
		{ports, []string{"skydns UDP 53", "skydns TCP 53", "skydns TCP 10055", "healthz TCP 8080"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	for _, arg := range []string{"--listen-client-urls=http://127.0.0.1:2379,http://127.0.0.1:4001", "--data-dir=" + pod.Containers[0].VolumeMounts[0].MountPath} {
		if !slices.Contains(args["etcd"], arg) {
			t.Errorf("arguments of etcd: got %q, want %s among them", args["etcd"], arg)
		}
	}
	if pod.Volumes[0].EmptyDir == nil || pod.DNSPolicy != corev1.DNSDefault || !*pod.SecurityContext.RunAsNonRoot {
		t.Errorf("pod: got %+v, want an emptyDir, dnsPolicy Default and runAsNonRoot", pod)
	}
	kubeDNS := object[appsv1.Deployment](t, kubeDNSDir+"one-container/deployment.yaml", "Deployment")
	if d.Name != kubeDNS.Name || !equality.Semantic.DeepEqual(d.Labels, kubeDNS.Labels) || !equality.Semantic.DeepEqual(d.Spec.Selector, kubeDNS.Spec.Selector) {
		t.Errorf("Deployment: got %+v, want the name, labels and selector of %+v", d.ObjectMeta, kubeDNS.ObjectMeta)
	}
	if got, want := object[corev1.Service](t, skyDNSDir+"service.yaml", "Service"), object[corev1.Service](t, kubeDNSDir+"base/service.yaml", "Service"); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("service.yaml: got %+v, want %+v", got, want)
	}
	if account := object[corev1.ServiceAccount](t, skyDNSDir+"account.yaml", "ServiceAccount"); account.Name != pod.ServiceAccountName {
		t.Errorf("account.yaml: got %s, want %s", account.Name, pod.ServiceAccountName)
	}
	k := readKustomization(t, skyDNSDir)
	for _, file := range must(filepath.Glob(filepath.Join(deployDir, skyDNSDir, "*.yaml")))(t) {
		if name := filepath.Base(file); name != "kustomization.yaml" && !slices.Contains(k.Resources, name) {
			t.Errorf("resources of the kustomization: got %v, want %s among them", k.Resources, name)
		}
	}
}

// The account may watch the resources that kube2sky watches, and no others.
func TestSkyDNSAccountMayWatch(t *testing.T) {
	t.Parallel()
	docs := documents(t, skyDNSDir+"rbac.yaml")
	role, binding := decode[rbacv1.ClusterRole](t, docs["ClusterRole"]), decode[rbacv1.ClusterRoleBinding](t, docs["ClusterRoleBinding"])
	if binding.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}) ||
		!slices.Equal(binding.Subjects, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "kube-dns", Namespace: "kube-system"}}) {
		t.Errorf("binding: got %+v, want the role %s for the account kube-dns", binding, role.Name)
	}
	var may, needs []string
	for _, rule := range role.Rules {
		if !slices.Equal(rule.Verbs, []string{"list", "watch"}) {
			t.Errorf("rule: got %+v, want the verbs list and watch", rule)
		}
		may = append(may, rule.Resources...)
	}
	for _, kind := range (cluster.Options{Pods: true}).Kinds() {
		needs = append(needs, kind.String())
	}
	slices.Sort(may)
	slices.Sort(needs)
	if !slices.Equal(may, needs) {
		t.Errorf("permissions to watch: got %s, want %s", may, needs)
	}
}

// The binary accepts each of our containers' command lines.
func TestSkyDNSCommandLines(t *testing.T) {
	t.Parallel()
	for _, c := range skyDNSPod(t).Containers[1:] {
		dry := map[string]string{"kube2sky": "--version", "skydns": "-print-corefile", "exec-healthz": "-version"}[c.Command[1]]
		p := exec.CommandContext(t.Context(), must(os.Executable())(t), append([]string{c.Command[1], dry}, c.Args...)...)
		p.Env = append(os.Environ(), "SEAMARK_TEST_MAIN=1")
		if out, err := p.CombinedOutput(); err != nil || len(out) == 0 || c.Command[0] != "/seamark" {
			t.Errorf("%q: got error %v, want none\n%s", c.Args, err, out)
		}
	}
}

// The pod's containers as processes on its ports, with a real API server: all
// probes succeed, and names go from the cluster through kube2sky, etcd and SkyDNS
// to the client, and disappear again.
func TestSkyDNSManifestsServe(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	inOwnNetwork(t, serveSkyDNS)
}

func serveSkyDNS(t *testing.T) {
	srv := start(t)
	kubernetes := writer(t, srv)
	kubernetes.namespace("default", nil)
	kubernetes.service("default", "kubernetes", "10.96.0.1", nil)
	pod := skyDNSPod(t)
	serveEtcd(t, pod.Containers[0].Args)
	resolv := t.TempDir() // nslookup must not use the machine's resolv.conf
	for _, c := range pod.Containers[1:] {
		p := exec.CommandContext(t.Context(), must(os.Executable())(t), append([]string{c.Command[1]}, c.Args...)...)
		if c.Name == "kube2sky" {
			p.Args = append(p.Args, "--kubecfg-file="+must(srv.Kubeconfig())(t))
		}
		// Without other programs, as in the image.
		p.Env = []string{"SEAMARK_TEST_MAIN=1", "PATH=" + resolv}
		for _, e := range c.Env {
			p.Env = append(p.Env, e.Name+"="+e.Value)
		}
		p.Stdout, p.Stderr = t.Output(), t.Output()
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = p.Process.Signal(syscall.SIGKILL)
			_ = p.Wait()
		})
	}
	for _, at := range []string{"http://127.0.0.1:8081/readiness", "http://127.0.0.1:8080/healthz"} {
		chaintest.Eventually(t, at, func() bool {
			reply, err := http.Get(at)
			if err != nil {
				return false
			}
			defer reply.Body.Close()
			return reply.StatusCode == http.StatusOK
		})
	}
	d := &daemon{T: t, at: "127.0.0.1:53"}
	d.await(
		lookupA("kubernetes.default.svc.cluster.local", "NOERROR 10.96.0.1"), lookupPTR("1.0.96.10.in-addr.arpa", "NOERROR kubernetes.default.svc.cluster.local."),
		lookupA("missing.default.svc.cluster.local", "NXDOMAIN"),
	)
	kubernetes.service("default", "late", "10.96.0.7", nil)
	d.awaitChange("a Service", lookupA("late.default.svc.cluster.local", "NOERROR 10.96.0.7"))
	remove(t, kubernetes.CoreV1().Services("default"), "late")
	d.awaitChange("no Service", lookupA("late.default.svc.cluster.local", "NXDOMAIN"))
	if text := podPage("http://127.0.0.1:10055/metrics"); !strings.Contains(text, `skydns_skydns_dns_request_count_total{system="auth"}`) || !strings.Contains(text, "seamark_etcd_data_age_seconds{") {
		t.Errorf("got metrics\n%s\nwant skydns_skydns_dns_request_count_total and seamark_etcd_data_age_seconds", text)
	}
	reply, err := exchangeUDP(new(dns.Msg).SetQuestion("kubernetes.default.svc.cluster.local.", dns.TypeA), d.at)
	if err != nil || len(reply.Answer) != 1 || reply.Answer[0].Header().Ttl != 30 {
		t.Errorf("kubernetes.default.svc.cluster.local A: got %v, error %v, want one record with TTL 30", reply, err)
	}
}

// serveEtcd runs etcd's own program with these arguments, but for the data
// directory, which is a volume in the manifest.
func serveEtcd(t *testing.T, args []string) {
	t.Helper()
	line := []string{"etcd"}
	for _, arg := range args {
		if strings.HasPrefix(arg, "--data-dir=") {
			arg = "--data-dir=" + filepath.Join(t.TempDir(), "etcd")
		}
		line = append(line, arg)
	}
	etcd := exec.Command(must(build())(t), append(line, "--log-level=fatal", "--unsafe-no-fsync")...)
	etcd.Stdout, etcd.Stderr = t.Output(), t.Output()
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = etcd.Process.Kill()
		_ = etcd.Wait()
	})
}

// The files that the README names exist.
func TestSkyDNSReadme(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(deployDir, skyDNSDir)
	text := string(must(os.ReadFile(filepath.Join(dir, "README.md")))(t))
	seen := 0
	for _, at := range regexp.MustCompile("(?:\\]\\(|\\| `)((?:\\.\\./)*(?:[a-z0-9-]+/)*[a-z0-9-]+\\.(?:yaml|md))").FindAllStringSubmatch(text, -1) {
		seen++
		if _, err := os.Stat(filepath.Join(dir, at[1])); err != nil {
			t.Errorf("README.md names %s: got error %v, want a file", at[1], err)
		}
	}
	if seen < 7 {
		t.Errorf("file names in README.md: got %d, want at least 7", seen)
	}
}
