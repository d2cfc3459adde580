package kubetest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// policyMap returns a ConfigMap with lines of the directive policy.
func policyMap(name string, lines ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"seamark.io/dns": "policy"}},
		Data:       map[string]string{"policy": strings.Join(lines, "\n")},
	}
}

// Groups by labels of a namespace and the lines of its ConfigMaps decide as the objects are now; another
// namespace decides nothing for its pods; an error keeps the last valid state and is told by an Event; and
// all stays while the API server is away, and over a reload.
func TestPolicyObjects(t *testing.T) {
	srv := start(t)
	w := writer(t, srv)
	for _, name := range []string{"team-a", "team-b"} {
		add(t, w.CoreV1().Namespaces(), namespace(name))
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
	}
	pod = add(t, w.CoreV1().Pods("team-a"), pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}}}
	must(w.CoreV1().Pods("team-a").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}))(t)

	location := kubeconfig(t, srv)
	corefile := ". {\n policy {\n  group agents {\n   namespace_labels tenant=agents\n   deny *.agents.test\n  }\n  group all {\n   deny *.secret.test\n  }\n" +
		"  group others {\n   unknown\n   deny unknown.test\n  }\n  objects {\n   delegate * .\n   " + location + "\n  }\n }\n" +
		" kubernetes cluster.local {\n  pods verified\n  " + location + "\n }\n template ANY ANY {\n  answer \"{{ .Name }} 60 IN A 192.0.2.1\"\n }\n}\n"
	d := serve(t, corefile)
	yes := func(name string) lookup { return lookupA(name, "NOERROR 192.0.2.1") }
	no := func(name string) lookup { return lookupA(name, "NXDOMAIN") }
	d.await(no("x.secret.test"), yes("x.agents.test"), yes("x.own.test"))

	maps := w.CoreV1().ConfigMaps("team-a")
	add(t, maps, policyMap("names", "deny *.own.test", "allow good.own.test y.secret.test"))
	add(t, w.CoreV1().ConfigMaps("team-b"), policyMap("names", "deny *.good.test"))
	d.await(no("x.own.test"), yes("good.own.test"), no("y.secret.test"), yes("x.good.test"))

	edit(t, maps, "names", func(m *corev1.ConfigMap) { m.Data["policy"] = "deny a..b" })
	eventually(t, "an Event about the error", func() bool {
		events := must(w.CoreV1().Events("team-a").List(t.Context(), metav1.ListOptions{}))(t)
		for _, e := range events.Items {
			if e.InvolvedObject.Name == "names" && e.Reason == "InvalidNames" && strings.Contains(e.Message, `policy:1: want a name`) {
				return true
			}
		}
		return false
	})
	d.check(no("x.own.test"), yes("good.own.test"))

	edit(t, w.CoreV1().Namespaces(), "team-a", func(n *corev1.Namespace) { n.Labels = map[string]string{"tenant": "agents"} })
	d.await(no("x.agents.test"), yes("y.secret.test"))

	srv.StopAPI()
	d.awaitFailures("configmaps", 2)
	d.check(no("x.agents.test"), no("x.own.test"), yes("x.good.test"))
	d.reload(corefile + "more.test {\n whoami\n}\n")
	d.check(no("x.agents.test"), no("x.own.test"), yes("x.good.test"))
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}

	remove(t, maps, "names")
	d.await(yes("x.own.test"))
	d.check(no("x.agents.test"))
}
