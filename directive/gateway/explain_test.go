package gateway

import (
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// explained returns the lines of the explanation of an A query.
func explained(t *testing.T, h dns.Explainer, name string) string {
	t.Helper()
	q := dns.NewQuery(nil)
	q.Reset(chaintest.Pack(t, chaintest.Query(name, "A")), dns.UDP, q.Start)
	q.Parse(q.Packet())
	var texts []string
	for _, c := range h.ExplainDNS(q, dns.Done) {
		texts = append(texts, c.Text)
	}
	return strings.Join(texts, "\n")
}

// An explanation names the object and its Service, or the objects that name a host without publishing it.
func TestExplain(t *testing.T) {
	h, b := plan(t, "delegate a a.example.test\ndelegate b b.example.test")
	h.source = h.newSource(b)
	r := &rig{h.source, t}
	for _, kind := range h.api.Kinds() {
		r.Listed(kind, func(cluster.Key) bool { return true })
	}
	r.put(frontend("a", "lb", "g", "10.0.0.1"), gatewayObject("a", "g", 1, listens("", "Same")),
		routeObject("a", "web", 1, "a/g", "w.a.example.test"),
		routeObject("b", "into", 1, "a/g", "x.b.example.test"), routeObject("b", "thief", 1, "a/g", "y.a.example.test"),
		&cluster.Ingress{Namespace: "a", Name: "in", Hosts: []string{"*.in.a.example.test"}})

	for name, want := range map[string]string{
		"w.a.example.test":    "the host is in HTTPRoute a/web, and has the addresses of Service a/lb",
		"x.b.example.test":    "no object publishes the name\nHTTPRoute b/into names x.b.example.test.: no listener that has accepted it, and allows its namespace, has the host",
		"z.in.a.example.test": "no object publishes the name\nIngress a/in names *.in.a.example.test.: no controller has written an address into its status",
		"example.test":        "the name is in no zone of the directive",
	} {
		if got := explained(t, h, name); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// An explanation names each object that has the host, and why it does not publish it.
func TestExplainRefused(t *testing.T) {
	h, b := plan(t, "max_hosts 2\ngatewayClasses lb\ningressClasses nginx")
	h.source = h.newSource(b)
	r := &rig{h.source, t}
	for _, kind := range h.api.Kinds() {
		r.Listed(kind, func(cluster.Key) bool { return true })
	}
	other, pending := gatewayObject("b", "other", 1, listens("*.other.example.test", "Same")), gatewayObject("b", "pending", 1, listens("pending.example.test", "Same"))
	other.Class, pending.Accepted = "mesh", false
	set := func(name, gateway string, accepted bool) *cluster.ListenerSet {
		return &cluster.ListenerSet{Namespace: "b", Name: name, Gateway: cluster.Key{Namespace: "b", Name: gateway}, Accepted: accepted,
			Listeners: []cluster.Listener{listens(name+".set.example.test", "Same")}}
	}
	r.put(frontend("a", "lb", "g", "10.0.0.1"), gatewayObject("a", "g", 1, listens("", "Same")),
		routeObject("a", "many", 1, "a/g", "1.example.test", "2.example.test", "*.many.example.test"),
		gatewayObject("b", "g", 1), other, pending,
		set("mesh", "other", true), set("pending", "pending", true), set("none", "none", true), set("refused", "g", false), set("closed", "g", true),
		&cluster.Ingress{Namespace: "b", Name: "in", Class: "traefik", Hosts: []string{"in.example.test", "in..example.test"}, Addresses: []string{"10.0.0.1"}})

	for name, want := range map[string]string{
		"2.example.test":           "HTTPRoute a/many names 2.example.test.: with it namespace a would have more than 2 hosts (max_hosts)",
		"x.many.example.test":      "HTTPRoute a/many names *.many.example.test.: with it namespace a would have more than 2 hosts (max_hosts)",
		"in.example.test":          "Ingress b/in names in.example.test.: the class of the Ingress is not in ingressClasses",
		"x.other.example.test":     "Gateway b/other names *.other.example.test.: the class of the Gateway is not in gatewayClasses",
		"pending.example.test":     "Gateway b/pending names pending.example.test.: no controller has accepted the Gateway",
		"mesh.set.example.test":    "ListenerSet b/mesh names mesh.set.example.test.: the class of the Gateway is not in gatewayClasses",
		"pending.set.example.test": "ListenerSet b/pending names pending.set.example.test.: no controller has accepted the Gateway",
		"none.set.example.test":    "ListenerSet b/none names none.set.example.test.: the Gateway b/none does not exist",
		"refused.set.example.test": "ListenerSet b/refused names refused.set.example.test.: no controller has accepted the ListenerSet",
		"closed.set.example.test":  "ListenerSet b/closed names closed.set.example.test.: the Gateway b/g does not allow ListenerSets of the namespace (allowedListeners)",
	} {
		if got := explained(t, h, name); got != "no object publishes the name\n"+want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
	r.faultsAre("HTTPRoute a/many: with it namespace a would have more than 2 hosts (max_hosts)")
}

// An explanation of a name in a zone for clients outside names the objects that do not publish it, too.
func TestExplainExternal(t *testing.T) {
	text := "example.test:53 {\ngateway {\nexternal\napex ns1 192.0.2.53\ndelegate a a.example.test\ndelegate b example.test\n}\n}\n"
	b, err := chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "gateway", Setup: Setup})
	if err != nil {
		t.Fatal(err)
	}
	x := config.Find[*External](b)[0]
	x.source = x.newSource(b)
	r := &rig{x.source, t}
	for _, kind := range x.api.Kinds() {
		r.Listed(kind, func(cluster.Key) bool { return true })
	}
	g, bare := gatewayObject("b", "g", 1, listens("", "All")), gatewayObject("b", "bare", 1, listens("bare.example.test", "Same"))
	g.Addresses = []string{"192.0.2.1"}
	r.put(g, bare, routeObject("b", "r", 1, "b/g", "w.example.test", "ns1.example.test"), routeObject("b", "thief", 1, "b/g", "y.a.example.test"))

	for name, want := range map[string]string{
		"w.example.test":    "",
		"none.example.test": "",
		"y.a.example.test":  "\nHTTPRoute b/thief names y.a.example.test.: y.a.example.test. is in a.example.test., which is not delegated to namespace b",
		"ns1.example.test":  "\nHTTPRoute b/r names ns1.example.test.: the zone has a name server of this name (apex or secondary)",
		"bare.example.test": "\nGateway b/bare names bare.example.test.: the status of the Gateway has no address",
	} {
		_, got, ok := strings.Cut(explained(t, x, name), "zone example.test. has serial number ")
		if got = strings.TrimLeft(got, "0123456789"); !ok || got != want {
			t.Errorf("%s: got %q after the sentences of the zone, want %q", name, got, want)
		}
	}
}
