package cache

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A hit may be repeated until its entry expires or is due for a refresh, and not while
// prefetch counts hits. An expired entry may not.
func TestRepeatFor(t *testing.T) {
	type hit struct {
		after, want time.Duration
	}
	for _, c := range []struct {
		options string
		ttl     uint32
		hits    []hit
	}{
		{"", 5, []hit{{0, time.Second}, {3900 * time.Millisecond, time.Second}, {600 * time.Millisecond, time.Second / 2}}},
		{"keepttl\n", 5, []hit{{4500 * time.Millisecond, time.Second / 2}}},
		{"serve_stale 1h\n", 5, []hit{{0, time.Second}, {5 * time.Second, 0}}},
		{"prefetch 3 1m 20%\n", 10, []hit{
			{0, 0}, {0, 0}, {0, time.Second}, {7500 * time.Millisecond, time.Second / 2}, {600 * time.Millisecond, time.Second},
		}},
		{"prefetch 2 30s\n", 100, []hit{{0, 0}, {0, time.Second}, {31 * time.Second, 0}, {0, time.Second}}}, // a gap
		{"prefetch 2 500ms\n", 100, []hit{{0, 0}, {0, time.Second / 4}}},
	} {
		t.Run(fmt.Sprintf("%q", c.options), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHarness(t, ".:53 {\n cache {\n"+c.options+"}\n upstream a\n}\n")
				w.upstreams["a"].answer = addressAnswer(c.ttl)
				ask := newQuery("www.example.org", mdns.TypeA)
				w.ask(ask)
				for i, h := range c.hits {
					time.Sleep(h.after)
					w.repeated = dns.Repeated{}
					if w.send(ask) == nil {
						t.Fatalf("hit %d: got a parked query, want an answer from the entry", i)
					}
					if got := w.repeated.Duration(); got != h.want {
						t.Errorf("hit %d: got %s, want %s", i, got, h.want)
					}
				}
			})
		})
	}
}

// Repeated replies count as hits of the same kind as those that the Cache sees.
func TestCountRepeats(t *testing.T) {
	const soa = ";\nexample.org. 300 IN SOA ns.example.org. admin.example.org. 1 2 3 4 300"
	for name, c := range map[string]struct {
		rcode wire.RCode
		text  string
		want  string
	}{
		"success":              {wire.NoError, "www.example.org. 300 IN A 192.0.2.1", "success"},
		"NXDOMAIN":             {wire.NXDomain, soa, "denial"},
		"NODATA":               {wire.NoError, soa, "denial"},
		"NODATA after a CNAME": {wire.NoError, "www.example.org. 300 IN CNAME b.example.org.\n" + soa, "denial"},
		"SERVFAIL":             {wire.ServFail, "", "denial"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t, ".:53 {\n cache\n upstream a\n}\n")
			w.upstreams["a"].answer = answerWith(c.rcode, c.text)
			ask := newQuery("www.example.org", mdns.TypeA)
			w.ask(ask)
			w.send(ask)
			if w.repeated.Duration() == 0 {
				t.Fatal("got a hit that may not be repeated")
			}
			w.repeated.Count(10)
			for _, kind := range []string{"success", "denial"} {
				want := "0"
				if kind == c.want {
					want = "11"
				}
				if got := w.metric(`coredns_cache_hits_total{server="dns://:53",type="` + kind + `",zones=".",view=""}`); got != want {
					t.Errorf("hits of the type %s: got %s, want %s", kind, got, want)
				}
			}
		})
	}
}
