package dns64

import (
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"

	"github.com/seamark/seamark/wire"
)

func startSIIT(t *testing.T, text string, below *backend) *testServer {
	t.Helper()
	b, err := chaintest.Setup(".:53 {\n"+text+"\n}\n", chaintest.QuietLog(), config.Directive{Name: "siit", Setup: SetupSIIT})
	if err != nil {
		t.Fatal(err)
	}
	b.SetDirective("backend")
	b.Handle(below)
	chain := b.Chain.CopyFor("dns://:53", ".")
	return &testServer{Server: chaintest.NewServer(t, map[string]*dns.Chain{".": chain}), t: t, block: b}
}

// Each length of a prefix has the IPv4 address at the place of RFC 6052 §2.4, whatever follows it.
func TestSIITPrefixes(t *testing.T) {
	for prefix, addr := range map[string]string{
		"2001:db8::/32":         "2001:db8:c000:221::ffff",
		"2001:db8:100::/40":     "2001:db8:1c0:2:21:ff00::",
		"2001:db8:122::/48":     "2001:db8:122:c000:2:2100::",
		"2001:db8:122:300::/56": "2001:db8:122:3c0:0:221::",
		"2001:db8:122:344::/64": "2001:db8:122:344:c0:2:2100:1",
		"2001:db8:122:344::/96": "2001:db8:122:344::c000:221",
	} {
		r := startSIIT(t, "siit {\nipv6_prefix "+prefix+"\n}", &backend{t: t, records: records(t, "a.test. 60 IN AAAA "+addr)})
		if got, _ := r.exchange(new(mdns.Msg).SetQuestion("a.test.", mdns.TypeA), v4); got != "NOERROR A 60 192.0.2.33" {
			t.Errorf("%s in %s: got %s, want NOERROR A 60 192.0.2.33", addr, prefix, got)
		}
	}
}

// An answer with A records is neither parked nor counted; synthesized ones are counted.
func TestSIITCounter(t *testing.T) {
	const series = `coredns_siit_requests_translated_total{server="dns://:53"}`
	r := startSIIT(t, "siit", &backend{t: t, records: records(t, zone+"\nin.test. 60 IN AAAA 64:ff9b::c000:201")})
	for _, c := range []struct {
		name, want string
		parked     bool
		count      string
	}{
		{"four.test.", "NOERROR A 300 192.0.2.33 A 900 192.0.2.34", false, "0"},
		{"six.test.", "NOERROR", true, "0"},
		{"in.test.", "NOERROR A 60 192.0.2.1", true, "1"},
		{"none.test.", "NXDOMAIN", false, "1"},
	} {
		got, parked := r.exchange(new(mdns.Msg).SetQuestion(c.name, mdns.TypeA), v6)
		if count := chaintest.Metric(r.block.Metrics, series); got != c.want || parked != c.parked || count != c.count {
			t.Errorf("%s: got %s, parked %v, count %s; want %s, %v, %s", c.name, got, parked, count, c.want, c.parked, c.count)
		}
	}
}

// TC of an answer is kept: the client asks again over TCP.
func TestSIITTruncated(t *testing.T) {
	all := []wire.Type{wire.TypeA, wire.TypeAAAA}
	r := startSIIT(t, "siit", &backend{t: t, truncated: all, records: records(t, "in.test. 60 IN AAAA 64:ff9b::c000:201")})
	if got, parked := r.exchange(new(mdns.Msg).SetQuestion("in.test.", mdns.TypeA), v4); !strings.Contains(got, "TC") || parked {
		t.Errorf("got %s, parked %v; want TC, not parked", got, parked)
	}

	// Without an address in it the AAAA answer may lack some.
	r = startSIIT(t, "siit", &backend{t: t, truncated: all[1:], records: records(t, "in.test. 60 IN MX 10 mail.test.")})
	if got, _ := r.exchange(new(mdns.Msg).SetQuestion("in.test.", mdns.TypeA), v4); !strings.Contains(got, "TC") {
		t.Errorf("with a truncated AAAA answer: got %s, want TC", got)
	}
}
