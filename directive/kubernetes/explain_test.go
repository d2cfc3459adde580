package kubernetes

import (
	"net/netip"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/dns"
)

// A causeTrace collects the causes of one handler.
type causeTrace struct {
	handler dns.Explainer
	texts   []string
}

func (*causeTrace) BeginStep(*dns.Query, int, string)         {}
func (*causeTrace) ObserveExchange(*dns.Query, *dns.Exchange) {}
func (c *causeTrace) EndStep(q *dns.Query, index int, v dns.Verdict) {
	if index != 0 || v == dns.Wait {
		return
	}
	for _, cause := range c.handler.ExplainDNS(q, v) {
		c.texts = append(c.texts, cause.Text)
	}
}

// The explanation is that of the answer, in names that look like others.
func TestExplanationFollowsAnswer(t *testing.T) {
	d := defaultOptions()
	d.zonal, d.through = true, true
	h := d.handler(t, load(d.newIndex(),
		namespaceObject("shop"),
		headless("shop", "db"),
		slice("shop", "db-1", "db", "sql 5432/tcp", "10.0.0.1@rack.zone-a", "10.0.0.2@zone-b"),
	))
	h.options = &options{}
	s := serve(t, d, h)

	client := netip.MustParseAddrPort("192.0.2.1:53")
	for _, c := range []struct{ name, qtype, want string }{
		{"ns.dns.cluster.local.", "A", "the name is that of the zone's DNS server"},
		{"far.dns.cluster.local.", "A", "the zone has only names below svc and pod"},
		{"9.0.0.10.in-addr.arpa.", "PTR", "no Service and no endpoint has the address 10.0.0.9"},
		{"1.0.0.10.in-addr.arpa.", "A", "the name has no A records"},
		{"rack.zone-a.pin._zone.db.shop.svc.cluster.local.", "A", "the name has the endpoints in the topology zone rack.zone-a"},
		{"zone-b.pi._zone.db.shop.svc.cluster.local.", "A", "the name of a port is _PORT._PROTOCOL.db.shop.svc.cluster.local."},
		{"zone-c.pin._zone.db.shop.svc.cluster.local.", "A", "the Service has no ready endpoint with A records in the topology zone zone-c"},
	} {
		trace := &causeTrace{handler: h}
		packet := request(t, c.name, mdns.StringToType[c.qtype], 0)
		if _, ok := s.Port.Explain(t.Context(), dns.Explained{Packet: packet, Client: client, Local: client, Proto: dns.UDP, Trace: trace}); !ok {
			t.Fatalf("%s %s: not explained", c.name, c.qtype)
		}
		if got := strings.Join(trace.texts, "\n"); !strings.HasPrefix(got+"\n", c.want+"\n") {
			t.Errorf("%s %s\ngot:\n%s\nwant first: %s", c.name, c.qtype, got, c.want)
		}
	}
}

// Before the endpoints are listed, the explanation does not say what the Service has.
func TestExplanationNotSynced(t *testing.T) {
	d := defaultOptions()
	ix := d.newIndex()
	relist(ix, cluster.Namespaces, []cluster.Object{namespaceObject("shop")})
	relist(ix, cluster.Services, []cluster.Object{headless("shop", "db")})
	h := d.handler(t, ix)
	h.options = &options{}

	trace := &causeTrace{handler: h}
	client := netip.MustParseAddrPort("192.0.2.1:53")
	s := serve(t, d, h)
	s.Port.Explain(t.Context(), dns.Explained{
		Packet: request(t, "db.shop.svc.cluster.local.", mdns.TypeA, 0), Client: client, Local: client, Proto: dns.UDP, Trace: trace,
	})
	const want = "not synced: endpointslices have not been listed since the start"
	if got := strings.Join(trace.texts, "\n"); got != want {
		t.Errorf("got:\n%s\nwant: %s", got, want)
	}
}
