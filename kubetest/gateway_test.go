package kubetest

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/seamark/seamark/kubetest/gatewayapi"
	"github.com/seamark/seamark/test/chaintest"
)

// defineGateways installs the kinds of the Gateway API that are read.
func defineGateways(t *testing.T, srv *Server) {
	t.Helper()
	for _, definition := range must(gatewayapi.CRDs("gateways", "listenersets", "httproutes", "grpcroutes", "tlsroutes"))(t) {
		if err := srv.Define(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
	}
}

// A gatewayWriter writes objects of the Gateway API as their owners and their controller do.
type gatewayWriter struct {
	t      *testing.T
	client dynamic.Interface
}

// put creates or replaces an object of a resource of version v1, in YAML, with its status.
func (w *gatewayWriter) put(resource, namespace, text string) {
	w.t.Helper()
	o := new(unstructured.Unstructured)
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		w.t.Fatal(err)
	}
	in := w.client.Resource(schema.GroupVersionResource{
		Group: "gateway.networking.k8s.io", Version: "v1", Resource: resource}).Namespace(namespace)
	status, hasStatus := o.Object["status"]
	made, err := in.Create(w.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		old := must(in.Get(w.t.Context(), o.GetName(), metav1.GetOptions{}))(w.t)
		o.SetResourceVersion(old.GetResourceVersion())
		made = must(in.Update(w.t.Context(), o, metav1.UpdateOptions{}))(w.t)
	}
	if hasStatus {
		made.Object["status"] = status
		must(in.UpdateStatus(w.t.Context(), made, metav1.UpdateOptions{}))(w.t)
	}
}

func (w *gatewayWriter) remove(resource, namespace, name string) {
	w.t.Helper()
	in := w.client.Resource(schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: resource})
	if err := in.Namespace(namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func newGatewayWriter(t *testing.T, srv *Server) *gatewayWriter {
	config := srv.Config()
	return &gatewayWriter{t, must(dynamic.NewForConfigAndClient(config, httpClient(t, config)))(t)}
}

const acceptedCondition = `{type: Accepted, status: "True", reason: Accepted, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}`

// publicGateway is a Gateway in a namespace, whose Service has an address.
func publicGateway(name, from, addresses string) string {
	return `{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: ` + name + `}, spec: {gatewayClassName: lb, ` +
		`listeners: [{name: web, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: ` + from + `}}}]}, ` +
		`status: {conditions: [` + acceptedCondition + `], addresses: [` + addresses + `]}}`
}

// routeTo is a HTTPRoute with hosts, which a controller has accepted.
func routeTo(name, namespace, gateway, hosts string) string {
	ref := `{name: ` + gateway + `, namespace: ` + namespace + `}`
	return `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: ` + name + `}, ` +
		`spec: {hostnames: [` + hosts + `], parentRefs: [` + ref + `]}, status: {parents: [{controllerName: example.org/lb, ` +
		`parentRef: ` + ref + `, conditions: [` + acceptedCondition + `]}]}}`
}

// gatewayService is a Service for a Gateway of its namespace.
func gatewayService(name, gateway, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"gateway.networking.k8s.io/gateway-name": gateway}},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Name: "web", Port: 80}}},
	}
}

func gatewayOf(options ...string) string {
	return "example.test {\n gateway {\n  " + strings.Join(options, "\n  ") + "\n }\n}\n"
}

// Hosts appear, change and end with their objects, also when the definitions come late and go; another
// tenant gets none of them; and the last state is kept while the API server is away, and over a reload.
func TestGatewayHosts(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	for _, name := range []string{"infra", "team-a", "team-b"} {
		add(t, w.CoreV1().Namespaces(), namespace(name))
	}
	add(t, w.CoreV1().Services("infra"), gatewayService("public-lb", "public", "10.96.0.10"))
	const inside = "NOERROR 10.96.0.10"

	corefile := gatewayOf("delegate infra example.test", "delegate team-a a.example.test", "delegate team-b b.example.test",
		"service team-b/own nginx", kubeconfig(t, srv))
	d := serve(t, corefile)
	add(t, w.NetworkingV1().Ingresses("team-b"), &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "old"},
		Spec: networkingv1.IngressSpec{IngressClassName: new("nginx"), Rules: []networkingv1.IngressRule{
			{Host: "old.b.example.test"}, {Host: "old.a.example.test"}}},
	})
	add(t, w.CoreV1().Services("team-b"), gatewayService("own", "own", "10.96.0.20"))
	old := lookupA("old.b.example.test", "NOERROR 10.96.0.20")
	d.await(old, lookupA("old.a.example.test", "SERVFAIL"))

	// The definitions come late.
	defineGateways(t, srv)
	g := newGatewayWriter(t, srv)
	g.put("gateways", "infra", publicGateway("public", "All", ""))
	g.put("httproutes", "team-a", routeTo("web", "infra", "public", "web.a.example.test"))
	web := lookupA("web.a.example.test", inside)
	d.await(web)
	load := d.startLoad(web)

	// Another tenant names the first one's hosts, with a Route and with a Gateway of its own.
	g.put("gateways", "team-b", publicGateway("own", "All", ""))
	g.put("httproutes", "team-b", routeTo("thief", "team-b", "own", `web.a.example.test, "*.a.example.test", "*.example.test", b.b.example.test`))
	d.await(lookupA("b.b.example.test", "NOERROR 10.96.0.20"))
	d.check(web, lookupA("x.a.example.test", "SERVFAIL"), lookupA("x.example.test", "SERVFAIL"))
	chaintest.Eventually(t, "the error of the thief", func() bool {
		return d.logs("Object with an error", "kind=HTTPRoute namespace=team-b name=thief", "a.example.test., which is not delegated to namespace team-b") > 0
	})

	// A listener that allows no other namespace has no Routes of others, whatever their status says.
	g.put("gateways", "infra", publicGateway("closed", "Same", `{value: 192.0.2.1}`))
	g.put("httproutes", "team-a", routeTo("second", "infra", "closed", "closed.a.example.test"))
	g.put("httproutes", "team-a", routeTo("third", "infra", "public", "third.a.example.test"))
	d.await(lookupA("third.a.example.test", inside))
	d.check(lookupA("closed.a.example.test", "SERVFAIL"))
	g.put("httproutes", "infra", routeTo("own", "infra", "closed", "closed.example.test"))
	d.await(lookupA("closed.example.test", "NOERROR 192.0.2.1")) // without a Service, the address of the status

	// Changes are served by the watch, without another list.
	lists := d.count("relists", "httproutes")
	g.put("httproutes", "team-a", routeTo("third", "infra", "public", "fourth.a.example.test"))
	d.await(lookupA("fourth.a.example.test", inside), lookupA("third.a.example.test", "SERVFAIL"))
	g.remove("httproutes", "team-a", "third")
	d.await(lookupA("fourth.a.example.test", "SERVFAIL"))
	if n := d.count("relists", "httproutes"); n != lists {
		t.Errorf("%d lists of HTTPRoutes, want %d", n, lists)
	}

	// Without an API server the last state is kept, also over a reload.
	srv.StopAPI()
	d.awaitFailures("gateways", 2)
	d.check(web, old)
	d.reload(corefile + "more.test {\n whoami\n}\n")
	d.check(web, old)
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Without its definition there are no Gateways, and no hosts of theirs. An Ingress stays.
	definitions := g.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := definitions.Delete(t.Context(), "gateways.gateway.networking.k8s.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	load.stop()
	d.await(lookupA("web.a.example.test", "SERVFAIL"))
	d.check(old)
}

// The ClusterRole of the documentation is what a server needs, and its Events reach the objects.
func TestGatewayRole(t *testing.T) {
	t.Parallel()
	srv := start(t)
	k := client(t, srv.Config())
	for _, name := range []string{"infra", "team-b"} {
		add(t, k.CoreV1().Namespaces(), namespace(name))
	}
	defineGateways(t, srv)
	g := newGatewayWriter(t, srv)
	g.put("gateways", "infra", publicGateway("public", "All", `{value: 192.0.2.1}`))
	g.put("httproutes", "team-b", routeTo("web", "infra", "public", "web.b.example.test, web.example.test"))

	d := serve(t, gatewayOf("delegate infra example.test", "delegate team-b b.example.test", asSeamark(t, srv)))
	chaintest.Eventually(t, "the log of the missing permission", func() bool {
		return d.logs("forbidden", "gateways") > 0 && d.logs("forbidden", "ingresses") > 0
	})
	d.check(lookupA("web.b.example.test", "SERVFAIL"))

	page := string(must(os.ReadFile("../docs/reference/directives/gateway.md"))(t))
	text := regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac.*?)```").FindStringSubmatch(page)
	role := decode[rbacv1.ClusterRole](t, must(yaml.YAMLToJSON([]byte(text[1])))(t))
	must(k.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}))(t)
	must(k.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "gateway"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: "seamark"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}, metav1.CreateOptions{}))(t)

	d.await(lookupA("web.b.example.test", "NOERROR 192.0.2.1"))
	chaintest.Eventually(t, "an Event of the object", func() bool {
		events, err := k.CoreV1().Events("team-b").List(context.Background(), metav1.ListOptions{})
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "HTTPRoute" && e.InvolvedObject.Name == "web" && e.Type == corev1.EventTypeWarning &&
				e.Message == "web.example.test. is in example.test., which is not delegated to namespace team-b" {
				return err == nil
			}
		}
		return false
	})
}
