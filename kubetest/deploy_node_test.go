package kubetest

import (
	"log/slog"
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

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// nodeDir is the directory of the manifests of the nodes' cache, relative to
// deploy/kubernetes.
const nodeDir = "../node/"

func nodeDaemonSet(t *testing.T) *appsv1.DaemonSet {
	return object[appsv1.DaemonSet](t, nodeDir+"daemonset.yaml", "DaemonSet")
}

// Two pods can run on a node during an upgrade, with two capabilities and no more.
func TestNodeManifests(t *testing.T) {
	d := nodeDaemonSet(t)
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if u := d.Spec.UpdateStrategy.RollingUpdate; u.MaxSurge.String() != "1" || u.MaxUnavailable.String() != "0" {
		t.Errorf("update strategy: got %+v, want maxSurge 1 and maxUnavailable 0", u)
	}
	if len(c.Ports) != 0 || !pod.HostNetwork {
		t.Errorf("got ports %v and hostNetwork %v, want no ports, which two pods of a node could not have", c.Ports, pod.HostNetwork)
	}
	want := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN", "BPF", "NET_BIND_SERVICE"}}
	if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || *s.RunAsUser != 0 || !equality.Semantic.DeepEqual(s.Capabilities, want) {
		t.Errorf("got security context %+v, want user 0 with capabilities %+v, a read-only root and no escalation", s, want)
	}
	if pod.DNSPolicy != corev1.DNSDefault || pod.PriorityClassName != "system-node-critical" || *pod.AutomountServiceAccountToken {
		t.Errorf("pod: got %+v, want dnsPolicy Default, priority system-node-critical and no token", pod)
	}
	service := object[corev1.Service](t, nodeDir+"service.yaml", "Service")
	if !slices.Contains(c.Args, "-upstreamsvc="+service.Name) || service.Spec.ClusterIP != "" {
		t.Errorf("arguments: got %q, want the Service %s with a ClusterIP", c.Args, service.Name)
	}
	if account := object[corev1.ServiceAccount](t, nodeDir+"account.yaml", "ServiceAccount"); account.Name != pod.ServiceAccountName {
		t.Errorf("account.yaml: got %s, want %s", account.Name, pod.ServiceAccountName)
	}
	k := readKustomization(t, nodeDir)
	for _, file := range must(filepath.Glob(filepath.Join(deployDir, nodeDir, "*.yaml")))(t) {
		if name := filepath.Base(file); name != "kustomization.yaml" && !slices.Contains(k.Resources, name) {
			t.Errorf("resources of the kustomization: got %v, want %s among them", k.Resources, name)
		}
	}
}

// nodeReplicas is the name of the headless Service.
const nodeReplicas = "kube-dns-replicas.kube-system.svc.cluster.local"

// nodeTemplate returns the template in a manifest with the ConfigMap.
func nodeTemplate(t *testing.T, file string) string {
	t.Helper()
	return object[corev1.ConfigMap](t, nodeDir+file, "ConfigMap").Data["Corefile"]
}

// planNode returns the Corefile that seamark node makes of a template. The server accepts
// it.
func planNode(t *testing.T, args []string, template string) string {
	t.Helper()
	base := filepath.Join(t.TempDir(), "Corefile.base")
	if err := os.WriteFile(base, []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), must(os.Executable())(t), append(slices.Clone(args), "-basecorefile="+base, "-kubednscm="+t.TempDir(), "-print-corefile")...)
	command.Env = append(os.Environ(), "SEAMARK_TEST_MAIN=1", "KUBE_DNS_UPSTREAM_SERVICE_HOST=10.96.0.99")
	command.Stderr = t.Output()
	text := must(command.Output())(t)
	r := corefile.ReadText("Corefile", text)
	if r.Err != nil {
		t.Fatalf("got error %v in\n%s", r.Err, text)
	}
	if _, err := server.NewPlan(r.Servers, server.Options{Directives: builtin.Directives(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry)}); err != nil {
		t.Fatalf("got error %v in\n%s", err, text)
	}
	return string(text)
}

// The replicas' Service has no ClusterIP and the pods of the other one.
func TestNodeReplicas(t *testing.T) {
	r, upstream := object[corev1.Service](t, nodeDir+"replicas.yaml", "Service"), object[corev1.Service](t, nodeDir+"service.yaml", "Service")
	if r.Spec.ClusterIP != corev1.ClusterIPNone || r.Name+"."+r.Namespace+".svc.cluster.local" != nodeReplicas || !equality.Semantic.DeepEqual(r.Spec.Selector, upstream.Spec.Selector) {
		t.Errorf("got %+v, want the headless Service %s with the selector %v", r, nodeReplicas, upstream.Spec.Selector)
	}
}

// With the component services the template differs by kubernetes and metadata, and the pod
// has the node's name and a token.
func TestNodeServices(t *testing.T) {
	const dir = "components/services/"
	t.Setenv("NODE_NAME", "worker-1")
	template := nodeTemplate(t, dir+"corefile.yaml")
	text := planNode(t, nodeDaemonSet(t).Spec.Template.Spec.Containers[0].Args, template)
	if !strings.Contains(text, "only services") {
		t.Errorf("got\n%s\nwant only services in it", text)
	}
	begin, end := strings.Index(template, "    metadata\n"), strings.Index(template, "    cache {")
	if begin < 0 || end < begin {
		t.Fatalf("got\n%s\nwant metadata and kubernetes before cache", template)
	}
	if rest, want := template[:begin]+template[end:], nodeTemplate(t, "corefile.yaml"); rest != want {
		t.Errorf("without kubernetes: got\n%s\nwant\n%s", rest, want)
	}
	k := readKustomization(t, nodeDir+dir)
	if p := k.Patches; k.Kind != "Component" || len(p) != 2 || !strings.Contains(p[1].Patch, "automountServiceAccountToken") || !strings.Contains(p[1].Patch, "NODE_NAME") {
		t.Errorf("got %+v, want a Component that adds NODE_NAME and a token", k)
	}
	role := object[rbacv1.ClusterRole](t, nodeDir+dir+"rbac.yaml", "ClusterRole")
	if r := role.Rules; len(r) != 1 || !slices.Equal(r[0].Resources, []string{"services", "namespaces", "pods"}) || !slices.Equal(r[0].Verbs, []string{"list", "watch"}) {
		t.Errorf("got rules %+v, want list and watch of services, namespaces and pods", r)
	}
}

// The arguments and the template result in a Corefile that the server accepts, and that has
// the probes' addresses and the mounted socket of the hand-over.
func TestNodeCorefile(t *testing.T) {
	pod := nodeDaemonSet(t).Spec.Template.Spec
	c := pod.Containers[0]
	if got, want := filepath.Join(c.VolumeMounts[0].MountPath, pod.Volumes[0].ConfigMap.Items[0].Path), "/etc/coredns/Corefile.base"; got != want {
		t.Errorf("template: got it at %s, want %s", got, want)
	}
	text := planNode(t, c.Args, nodeTemplate(t, "corefile.yaml"))
	for _, want := range []string{
		"health " + c.LivenessProbe.HTTPGet.Host + ":" + c.LivenessProbe.HTTPGet.Port.String(),
		"ready " + c.ReadinessProbe.HTTPGet.Host + ":" + c.ReadinessProbe.HTTPGet.Port.String(),
		"prometheus :9253", "bind 169.254.20.10 10.96.0.10\n", "resolver 10.96.0.99\n", "fallback 10.96.0.99\n", "forward cluster.local " + nodeReplicas + " {", "handover " + c.VolumeMounts[2].MountPath + "/",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}
}

// With the component an old pod ends before the new one starts.
func TestNodeReplace(t *testing.T) {
	k := readKustomization(t, nodeDir+"components/replace")
	if p := k.Patches; k.Kind != "Component" || len(p) != 1 || p[0].Target.Kind != "DaemonSet" || p[0].Target.Name != nodeDaemonSet(t).Name ||
		!strings.Contains(p[0].Patch, "maxSurge: 0") {
		t.Errorf("got %+v, want a Component that sets maxSurge 0", k)
	}
}

// The files that the README names exist.
func TestNodeReadme(t *testing.T) {
	dir := filepath.Join(deployDir, nodeDir)
	text := string(must(os.ReadFile(filepath.Join(dir, "README.md")))(t))
	seen := 0
	for _, at := range regexp.MustCompile("(?:\\]\\(|`)((?:\\.\\./)*(?:[a-z0-9-]+/)*[a-z0-9-]+\\.(?:yaml|md))").FindAllStringSubmatch(text, -1) {
		if at[1] == "kustomization.yaml" { // the reader's own
			continue
		}
		seen++
		if _, err := os.Stat(filepath.Join(dir, at[1])); err != nil {
			t.Errorf("README.md names %s: got error %v, want a file", at[1], err)
		}
	}
	if seen < 6 {
		t.Errorf("file names in README.md: got %d, want at least 6", seen)
	}
}
