package kubetest

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/cluster"
)

// With a node's name the API server delivers the Pods of that node, and that Node.
func TestClusterOfNode(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	add(t, w.CoreV1().Namespaces(), namespace("shop"))
	pod := func(name, node, ip string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}},
		}
	}
	create := func(name, node, ip string) {
		t.Helper()
		p := add(t, w.CoreV1().Pods("shop"), pod(name, node, ip))
		p.Status = pod(name, node, ip).Status
		must(w.CoreV1().Pods("shop").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}))(t)
	}
	create("here", "worker-1", "10.1.0.1")
	create("there", "worker-2", "10.2.0.1")
	config := must(srv.Kubeconfig())(t)
	f := follow(t, cluster.Options{Kubeconfig: config, Pods: true, NoEndpoints: true, NodeName: "worker-1"})
	f.has(t, cluster.Pods, "shop/here")
	create("later-there", "worker-2", "10.2.0.2")
	create("later-here", "worker-1", "10.1.0.2")
	f.has(t, cluster.Pods, "shop/here shop/later-here") // events arrive in order
	edit(t, w.CoreV1().Pods("shop"), "there", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} })
	remove(t, w.CoreV1().Pods("shop"), "here")
	f.has(t, cluster.Pods, "shop/later-here")
	if events := f.metrics.Counter("seamark_kubernetes_events_total", "", "resource", "pods").Value(); events > 4 {
		t.Errorf("got %d events of Pods, want those of the Pods of one node: at most 4", events)
	}
	if f.relists[cluster.Slices] > 0 {
		t.Error("EndpointSlices have been listed, want no request for them")
	}

	for _, name := range []string{"worker-1", "worker-2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "zone-of-" + name}}}
		must(w.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}))(t)
	}
	nodes := follow(t, cluster.Options{Kubeconfig: config, Nodes: true, NodeName: "worker-2"})
	nodes.has(t, cluster.Nodes, "worker-2")
	if n := nodes.get(cluster.Nodes, "", "worker-2").(*cluster.Node); n.OwnZone != "zone-of-worker-2" {
		t.Errorf("got zone %q, want zone-of-worker-2", n.OwnZone)
	}
}

// With only services the server of forward answers until the lists have been received, and
// names of endpoints always. A node that starts while the API server is away is no worse
// than one without data.
func TestServerOnlyServices(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	add(t, w.CoreV1().Namespaces(), namespace("shop"))
	add(t, w.CoreV1().Services("shop"), service("api", "10.96.0.10"))
	add(t, w.CoreV1().Services("shop"), service("db"))
	replica := upstream(t, "api.shop.svc.cluster.local. 5 IN A 192.0.2.1", "db.shop.svc.cluster.local. 5 IN A 10.1.0.1",
		"later.shop.svc.cluster.local. 5 IN A 192.0.2.2")
	srv.StopAPI()
	text := strings.Replace(corefileOf(kubeconfig(t, srv), "only services"), "}\n}\n", "}\n forward . "+replica+"\n}\n", 1)
	d := serve(t, text)
	d.await(lookupA("api.shop.svc.cluster.local", "NOERROR 192.0.2.1"))
	reply, err := http.Get("http://" + d.ready + "/ready")
	if err != nil {
		t.Fatal(err)
	}
	_ = reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Errorf("/ready without an API server: got %s, want 200", reply.Status)
	}
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.await(lookupA("api.shop.svc.cluster.local", "NOERROR 10.96.0.10"))
	d.check(lookupA("db.shop.svc.cluster.local", "NOERROR 10.1.0.1"), lookupA("later.shop.svc.cluster.local", "NXDOMAIN"),
		lookupPTR("10.0.96.10.in-addr.arpa", "NOERROR api.shop.svc.cluster.local."))
	add(t, w.CoreV1().Services("shop"), service("later", "10.96.0.11"))
	d.await(lookupA("later.shop.svc.cluster.local", "NOERROR 10.96.0.11"))
	srv.StopAPI()
	d.check(lookupA("api.shop.svc.cluster.local", "NOERROR 10.96.0.10"), lookupA("db.shop.svc.cluster.local", "NOERROR 10.1.0.1"))
}
