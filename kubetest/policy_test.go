package kubetest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/seamark/seamark/kubetest/networkpolicyapi"
	"github.com/seamark/seamark/test/chaintest"
)

// policyMap returns a ConfigMap with lines of the directive policy.
func policyMap(name string, lines ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"seamark.io/dns": "policy"}},
		Data:       map[string]string{"policy": strings.Join(lines, "\n")},
	}
}

// addClient adds a pod of team-a with the address of this machine, from which the queries of tests are.
func addClient(t *testing.T, w kubernetes.Interface) {
	t.Helper()
	pods := w.CoreV1().Pods("team-a")
	pod := add(t, pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
	})
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}}}
	must(pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}))(t)
}

// Groups by labels of a namespace and the lines of its ConfigMaps decide as the objects are now; another
// namespace decides nothing for its pods; an error keeps the last valid state and is told by an Event; and
// all stays while the API server is away, and over a reload.
func TestPolicyObjects(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	for _, name := range []string{"team-a", "team-b"} {
		add(t, w.CoreV1().Namespaces(), namespace(name))
	}
	addClient(t, w)

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
	chaintest.Eventually(t, "an Event about the error", func() bool {
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

// ClusterNetworkPolicies decide once their definition is there, and as long as it is. A rule that does not
// decide about names is told by an Event.
func TestPolicyClusterNetworkPolicies(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	add(t, w.CoreV1().Namespaces(), namespace("team-a"))
	addClient(t, w)

	location := kubeconfig(t, srv)
	d := serve(t, ". {\n policy {\n  cluster_network_policies\n  group all\n  group others {\n   unknown\n   deny *\n  }\n }\n"+
		" kubernetes cluster.local {\n  pods verified\n  "+location+"\n }\n template ANY ANY {\n  answer \"{{ .Name }} 60 IN A 192.0.2.1\"\n }\n}\n")
	yes := func(name string) lookup { return lookupA(name, "NOERROR 192.0.2.1") }
	no := func(name string) lookup { return lookupA(name, "NXDOMAIN") }
	d.await(yes("www.good.test"), yes("www.bad.test"))

	if err := srv.Define(t.Context(), must(networkpolicyapi.CRD())(t)); err != nil {
		t.Fatal(err)
	}
	config := srv.Config()
	custom := must(dynamic.NewForConfigAndClient(config, httpClient(t, config)))(t)
	policies := custom.Resource(schema.GroupVersionResource{Group: "policy.networking.k8s.io", Version: "v1beta1", Resource: "clusternetworkpolicies"})
	put := func(text string) {
		t.Helper()
		o := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		must(policies.Create(t.Context(), o, metav1.CreateOptions{}))(t)
	}
	put(`{apiVersion: policy.networking.k8s.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: web}, spec: {tier: Admin, priority: 10,
		subject: {pods: {namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [team-a]}]}, podSelector: {matchLabels: {app: web}}}},
		egress: [{name: names, action: Accept, to: [{domainNames: ["*.good.test"]}]}, {name: rest, action: Deny, to: [{networks: ["0.0.0.0/0", "::/0"]}]}]}}`)
	d.await(no("www.bad.test"))
	d.check(yes("www.good.test"), no("good.test"))

	put(`{apiVersion: policy.networking.k8s.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: base}, spec: {tier: Baseline, priority: 10,
		subject: {namespaces: {}}, egress: [{name: names, action: Accept, to: [{domainNames: ["*.bad.test"]}]}]}}`)
	chaintest.Eventually(t, "an Event about the policy", func() bool {
		events := must(w.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{}))(t)
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "ClusterNetworkPolicy" && e.InvolvedObject.Name == "base" && strings.Contains(e.Message, "precede the tier Baseline") {
				return true
			}
		}
		return false
	})
	d.check(no("www.bad.test"))
	add(t, w.CoreV1().Namespaces(), namespace("kube-system"))
	add(t, w.CoreV1().ConfigMaps("kube-system"), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "coredns"},
		Data: map[string]string{"Corefile": ".:53 {\n policy {\n  cluster_network_policies\n  group all\n  group others {\n   unknown\n   deny *\n  }\n }\n" +
			" kubernetes cluster.local {\n  pods verified\n }\n forward . 192.0.2.1\n}\n"},
	})
	const told = "Corefile:2: policy: ClusterNetworkPolicy base: its domainNames do not decide"
	if out, code := command(t, srv, "check", "--from-cluster"); !strings.Contains(out, told) || code != 1 {
		t.Errorf("seamark check --from-cluster: got status %d and\n%s\nwant status 1 and a line with %s", code, out, told)
	}

	definitions := custom.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := definitions.Delete(t.Context(), "clusternetworkpolicies.policy.networking.k8s.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.await(yes("www.bad.test"))
}
