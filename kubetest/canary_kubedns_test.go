package kubetest

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/seamark/seamark/test/chaintest"
)

// kubedns creates a Deployment of kube-dns with two pods and its Service in a namespace, and waits until they are ready.
func (d *dnsCluster) kubedns(namespace string, o *appsv1.Deployment) {
	d.Helper()
	o.Namespace, o.Spec.Replicas = namespace, new(int32(2))
	add(d.T, d.k.AppsV1().Deployments(namespace), o)
	s := object[corev1.Service](d.T, kubeDNSDir+"base/service.yaml", "Service")
	s.Namespace, s.Spec.ClusterIP = namespace, ""
	add(d.T, d.k.CoreV1().Services(namespace), s)
	chaintest.Eventually(d.T, "kube-dns of "+namespace, func() bool { return d.endpoints(namespace) == "kube-dns:2" })
}

// A canary replaces each program of kube-dns as the patches do, at all stages and back, and so it replaces Seamark
// that was installed for kube-dns. What Seamark does not serve in its place is refused by name before anything is
// changed, and errors that kube-dns's metrics show stop it later.
func TestCanaryKubeDNS(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	patched, one := afterPatches(t, "sidecar", "kubedns", "dnsmasq"), afterPatches(t, "one-container")
	for _, c := range []struct {
		name      string
		old, want *appsv1.Deployment
	}{
		{"kube-dns", stockKubeDNS(), patched}, {"three-containers", patched, patched}, {"one-container", one, one},
	} {
		t.Run(c.name, func(t *testing.T) { d.replaceKubeDNS(t, c.name, c.old, c.want) })
	}

	for _, c := range []struct {
		name   string
		change func(containers []corev1.Container)
		config string
		want   string
	}{
		{"option", func(c []corev1.Container) { c[1].Args = append(c[1].Args, "--dnssec") }, "{}", "--dnssec"},
		{"flag", func(c []corev1.Container) { c[0].Args = append(c[0].Args, "--nonsense") }, "{}", "--nonsense"},
		{"alone", func(c []corev1.Container) {
			c[1].Image, c[1].Args = "kube-dnsmasq-amd64", []string{"--cache-size=1000"}
		}, "{}",
			"the container dnsmasq runs dnsmasq without dnsmasq-nanny"},
		{"wrapped", func(c []corev1.Container) { c[1].Command = []string{"sh", "-c", "exec /dnsmasq-nanny"} }, "{}",
			"the container dnsmasq has a command that is none of kube-dns's programs: sh -c exec /dnsmasq-nanny"},
		{"metrics", func(c []corev1.Container) {
			c[0].Env[0] = corev1.EnvVar{Name: "PROMETHEUS_PORT", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
		}, "{}", "the variable PROMETHEUS_PORT of kube-dns is a reference"},
		{"map", func(c []corev1.Container) {
			c[0].Args = append(c[0].Args[:2:2], "--config-map=kube-dns", "--config-map-namespace=map")
		},
			`{"acme.example": 1}`, "stubDomains"},
		{"config", func([]corev1.Container) {}, `{"acme.example": 1}`, "stubDomains"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := stockKubeDNS()
			c.change(o.Spec.Template.Spec.Containers)
			d.kubedns(c.name, o)
			add(t, d.k.CoreV1().ConfigMaps(c.name), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: c.name},
				Data: map[string]string{"stubDomains": c.config}})

			out, err := d.canary(c.name, "start --image=registry.invalid/seamark:1 --compare=none")
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("start: got %v and\n%s\nwant an error with %q", err, out, c.want)
			}
			if list := must(d.k.AppsV1().Deployments(c.name).List(t.Context(), metav1.ListOptions{}))(t); len(list.Items) != 1 {
				t.Errorf("got %d Deployments, want that of kube-dns alone", len(list.Items))
			}
		})
	}

	d.kubedns("errors", stockKubeDNS())
	d.set(func() { d.servfail["seamark-canary"] = 20 })
	const stop = "SERVFAIL: 2.00% of Seamark's queries, 0.00% of the old server's"
	for i, line := range []string{"start --image=registry.invalid/seamark:1", "promote --interval=1ms", "promote --interval=1ms"} {
		out, err := d.canary("errors", line+" --compare=none")
		if failed := err != nil; failed != (i == 2) || failed != strings.Contains(out, stop) {
			t.Fatalf("%s: got %v and\n%s\nwant only the second promotion to fail, with %q", line, err, out, stop)
		}
	}
	if got, want := d.endpoints("errors"), "kube-dns:2 seamark-canary:1"; got != want {
		t.Errorf("after the stop rule: got endpoints %s, want %s", got, want)
	}
}

// canary runs the command in a namespace.
func (d *dnsCluster) canary(namespace, line string) (output string, err error) {
	return d.command("seamark", append([]string{"canary"}, strings.Fields(line+" --namespace="+namespace)...)...)
}

// replaceKubeDNS compares the pods of Seamark with those of another Deployment, and goes through the stages if the old
// Deployment is kube-dns's own.
func (d *dnsCluster) replaceKubeDNS(t *testing.T, namespace string, old, want *appsv1.Deployment) {
	d.kubedns(namespace, old.DeepCopy())
	stages := []string{"kube-dns:2", "kube-dns:2 seamark-canary:1", "kube-dns:2 seamark:2", "seamark:2", "kube-dns:2"}
	for i, line := range []string{"start --image=registry.invalid/seamark:1 --compare=none", "promote --compare=none --interval=1ms",
		"promote --compare=none --interval=1ms", "promote --compare=none --interval=1ms", "rollback --delete"} {
		out, err := d.canary(namespace, line)
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		chaintest.Eventually(t, line+": endpoints "+stages[i], func() bool { return d.endpoints(namespace) == stages[i] })
		if i == 0 {
			got := must(d.k.AppsV1().Deployments(namespace).Get(t.Context(), "seamark", metav1.GetOptions{}))(t)
			comparePrograms(t, got.Spec.Template.Spec, want.DeepCopy().Spec.Template.Spec)
		}
		if old == want {
			return
		}
	}
}

// comparePrograms compares the containers of a canary with those of a patched Deployment, but for the names of ports, the
// flag --admin, and what the API server adds.
func comparePrograms(t *testing.T, got, want corev1.PodSpec) {
	t.Helper()
	for i := range want.Containers {
		c := &want.Containers[i]
		c.Image = "registry.invalid/seamark:1"
		if c.Name == "kubedns" && !slices.Contains(c.Args, "--admin=localhost:8053") {
			c.Args = append(c.Args, "-admin=localhost:8053")
		}
	}

	for _, containers := range [][]corev1.Container{got.Containers, want.Containers} {
		for i := range containers {
			c := &containers[i]
			c.ImagePullPolicy, c.TerminationMessagePath, c.TerminationMessagePolicy = "", "", ""
			for n := range c.Ports {
				c.Ports[n].Name = ""
			}
			for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
				if probe != nil {
					probe.PeriodSeconds, probe.SuccessThreshold, probe.FailureThreshold, probe.HTTPGet.Scheme = 0, 0, 0, ""
				}
			}
		}
	}
	if !equality.Semantic.DeepEqual(got.Containers, want.Containers) {
		t.Errorf("containers: got\n%s\nwant\n%s", must(yaml.Marshal(got.Containers))(t), must(yaml.Marshal(want.Containers))(t))
	}
}
