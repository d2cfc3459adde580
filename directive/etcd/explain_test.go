package etcd

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/dns"
)

// A causeTrace keeps the causes of the last step.
type causeTrace struct{ texts []string }

func (*causeTrace) BeginStep(*dns.Query, int, string)         {}
func (*causeTrace) ObserveExchange(*dns.Query, *dns.Exchange) {}
func (c *causeTrace) EndStep(q *dns.Query, step int, v dns.Verdict) {
	c.texts = nil
	for _, cause := range q.Chain().Handler(step).(dns.Explainer).ExplainDNS(q, v) {
		c.texts = append(c.texts, cause.Text)
	}
}

func (s *server) causes(t *testing.T, name, qtype string) []string {
	t.Helper()
	trace := new(causeTrace)
	client := netip.MustParseAddrPort("127.0.0.1:1")
	query := dns.Explained{Packet: packet(t, name, qtype, 0), Client: client, Local: client, Proto: dns.TCP, Trace: trace}
	if _, ok := s.Port.Explain(t.Context(), query); !ok {
		t.Fatalf("%s %s: got no explanation", name, qtype)
	}
	return trace.texts
}

func TestExplain(t *testing.T) {
	s := serveKeys(t, "", `/skydns/test/www {"host":"10.0.0.1"}
/skydns/test/many/a {"host":"10.0.0.2"}
/skydns/test/many/b {"host":"10.0.0.3"}
/skydns/test/many/c {"host":"10.0.0.4"}
/skydns/test/many/d {"host":"10.0.0.5"}
/skydns/test/many/e {"host":"10.0.0.6"}
/skydns/test/many/f {"host":"10.0.0.7"}
/skydns/test/dns/apex/x {"host":"10.0.0.8"}
`)
	for _, c := range []struct{ name, qtype, want string }{
		{"www.test.", "A", "key /skydns/test/www"},
		{"WWW.test.", "MX", "key /skydns/test/www"},
		{"www.nosuch.test.", "A", "no key is at or below /skydns/test/nosuch/www"},
		{"many.test.", "A", "key /skydns/test/many/a; key /skydns/test/many/b; key /skydns/test/many/c; key /skydns/test/many/d; key /skydns/test/many/e; and 1 more keys below /skydns/test/many"},
		{"test.", "A", "key /skydns/test/dns/apex/x"},
		{"test.", "SOA", "the name is that of the zone, which has a SOA record"},
		{`a\000.test.`, "A", "a label of the name has a zero byte, which no key has"},
	} {
		if got := strings.Join(s.causes(t, c.name, c.qtype), "; "); got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.name, c.qtype, got, c.want)
		}
	}
	passing := serveKeys(t, "fallthrough", "")
	if got, want := passing.causes(t, "x.test.", "A"), []string{"no key is at or below /skydns/test/x", "fallthrough passes the name on"}; !slices.Equal(got, want) {
		t.Errorf("with fallthrough: got %q, want %q", got, want)
	}
	h, err := plan("etcd test {\n}")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := serve(t, h, nil, ".").causes(t, "x.test.", "A"), []string{"not synced: the keys in etcd have not been listed since the start"}; !slices.Equal(got, want) {
		t.Errorf("before the first list: got %q, want %q", got, want)
	}
}
