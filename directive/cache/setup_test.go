package cache

import (
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

func TestSetup(t *testing.T) {
	usual := func(change func(o *options)) options {
		o := options{
			bounds:      [2]bounds{{9984, 5, 3600}, {9984, 5, 1800}},
			prefetchGap: time.Minute, prefetchPercent: 10, servfailFor: 5 * time.Second,
		}
		if change != nil {
			change(&o)
		}
		return o
	}
	stale := func(change func(o *options)) options {
		return usual(func(o *options) {
			o.staleFor = time.Hour
			if change != nil {
				change(o)
			}
		})
	}
	for _, test := range []struct {
		text string
		want options
	}{
		{"cache", usual(nil)},
		{"cache 30", usual(func(o *options) { o.bounds[0].maxTTL, o.bounds[1].maxTTL = 30, 30 })},
		{"cache 30 {\n success 10 20 0\n denial 11\n}", usual(func(o *options) {
			o.bounds = [2]bounds{{10, 0, 20}, {11, 5, 30}}
		})},
		{"cache {\n success 0\n denial 9984 5\n}", usual(func(o *options) {
			o.bounds[0].entries, o.bounds[1].maxTTL = 0, 5
		})},
		{"cache {\n prefetch 3\n}", usual(func(o *options) { o.prefetch = 3 })},
		{"cache {\n prefetch 3 10m\n}", usual(func(o *options) { o.prefetch, o.prefetchGap = 3, 10*time.Minute })},
		{"cache {\n prefetch 3 20%\n}", usual(func(o *options) { o.prefetch, o.prefetchPercent = 3, 20 })},
		{"cache {\n prefetch 3 10m 90%\n}", usual(func(o *options) { o.prefetch, o.prefetchGap, o.prefetchPercent = 3, 10*time.Minute, 90 })},
		{"cache {\n serve_stale\n}", stale(nil)},
		{"cache {\n serve_stale 2h\n}", stale(func(o *options) { o.staleFor = 2 * time.Hour })},
		{"cache {\n serve_stale immediate\n}", stale(nil)},
		{"cache {\n serve_stale 2h immediate 30s 1m\n}", stale(func(o *options) {
			o.staleFor, o.staleTTL, o.recheck = 2*time.Hour, 30, time.Minute
		})},
		{"cache {\n serve_stale 1h verify\n}", stale(func(o *options) { o.verify = true })},
		{"cache {\n serve_stale immediate 15\n}", stale(func(o *options) { o.staleTTL = 15 })},
		{"cache {\n serve_stale 1h verify 500ms 30s 10s\n}", stale(func(o *options) {
			o.verify, o.verifyTimeout, o.staleTTL, o.recheck = true, 500*time.Millisecond, 30, 10*time.Second
		})},
		{"cache {\n serve_stale 99999h immediate 30s\n}", stale(func(o *options) { o.staleFor, o.staleTTL = 99999*time.Hour, 30 })},
		{"cache {\n serve_stale immediate 2000000h 2000000h\n}", stale(func(o *options) {
			o.staleTTL, o.recheck = 1<<31-1, 876000*time.Hour
		})},
		{"cache {\n serve_stale 1h VERIFY\n}", stale(func(o *options) { o.verify = true })},
		{"cache {\n serve_stale Immediate\n}", stale(nil)},
		{"cache {\n serve_stale_policy Prefer_Positive\n serve_stale\n}", stale(func(o *options) { o.preferPositive = true })},
		{"cache {\n serve_stale 1h\n serve_stale_policy prefer_positive\n}", stale(func(o *options) { o.preferPositive = true })},
		{"cache {\n servfail 0s\n}", usual(func(o *options) { o.servfailFor = 0 })},
		{"cache {\n servfail 5m\n}", usual(func(o *options) { o.servfailFor = 5 * time.Minute })},
		{"cache {\n keepttl\n}", usual(func(o *options) { o.keepTTL = true })},
		{"cache {\n disable success\n disable denial example.org\n disable denial 10.0.0.0/8\n}", usual(func(o *options) {
			o.disabled[0].On = true
			o.disabled[1] = config.Fallthrough{On: true, Zones: []wire.Name{"\x07example\x03org\x00", "\x0210\x07in-addr\x04arpa\x00"}}
		})},
	} {
		w := newHarness(t, ".:53 {\n "+test.text+"\n upstream a\n}\n")
		if got := w.caches[0].options; !equal(got, test.want) {
			t.Errorf("%s\n got %+v\nwant %+v", test.text, got, test.want)
		}
	}
}

func equal(a, b options) bool {
	for i := range a.disabled {
		if a.disabled[i].On != b.disabled[i].On || !slices.Equal(a.disabled[i].Zones, b.disabled[i].Zones) {
			return false
		}
	}
	a.disabled, b.disabled = [2]config.Fallthrough{}, [2]config.Fallthrough{}
	return a.bounds == b.bounds && a.prefetch == b.prefetch && a.prefetchGap == b.prefetchGap && a.prefetchPercent == b.prefetchPercent &&
		a.staleFor == b.staleFor && a.staleTTL == b.staleTTL && a.recheck == b.recheck && a.verify == b.verify &&
		a.verifyTimeout == b.verifyTimeout && a.preferPositive == b.preferPositive && a.servfailFor == b.servfailFor && a.keepTTL == b.keepTTL
}

func TestSetupErrors(t *testing.T) {
	const most = "2147483647"
	for _, test := range []struct{ text, want string }{
		{"cache\ncache", `Corefile:3: cache: already given at Corefile:2, and can be given once in a server block`},
		{"cache 0", `Corefile:2: cache: want 1..` + most + `, got "0"`},
		{"cache -1", `Corefile:2: cache: want 1..` + most + `, got "-1"`},
		{"cache 30 example..org", `Corefile:2: cache: not a zone: "example..org": empty label`},
		{"cache {\n size 10\n}", `Corefile:3: cache: unknown option "size"`},
		{"cache {\n succes 10\n}", `Corefile:3: cache: unknown option "succes"; did you mean "success"?`},
		{"cache {\n success\n}", `Corefile:3: cache: success: got no arguments, usage: success CAPACITY [TTL] [MINTTL]`},
		{"cache {\n success 1 2 3 4\n}", `Corefile:3: cache: success: got 4 arguments, usage: success CAPACITY [TTL] [MINTTL]`},
		{"cache {\n success x\n}", `Corefile:3: cache: success: want 0..` + most + `, got "x"`},
		{"cache {\n success -1\n}", `Corefile:3: cache: success: want 0..` + most + `, got "-1"`},
		{"cache {\n success 1 0\n}", `Corefile:3: cache: success: want 1..` + most + `, got "0"`},
		{"cache {\n success 1 2 x\n}", `Corefile:3: cache: success: want 0..` + most + `, got "x"`},
		{"cache {\n denial\n}", `Corefile:3: cache: denial: got no arguments, usage: denial CAPACITY [TTL] [MINTTL]`},
		{"cache {\n denial 1 30s\n}", `Corefile:3: cache: denial: want 1..` + most + `, got "30s"`},
		{"cache {\n prefetch\n}", `Corefile:3: cache: prefetch: got no arguments, usage: prefetch AMOUNT [[DURATION] [PERCENT%]]`},
		{"cache {\n prefetch -1\n}", `Corefile:3: cache: prefetch: want 0..` + most + `, got "-1"`},
		{"cache {\n prefetch 1 2\n}", `Corefile:3: cache: prefetch: want a duration of 0s..8760h, got "2"`},
		{"cache {\n prefetch 1 1m 20\n}", `Corefile:3: cache: prefetch: want 10%..90%, got "20"`},
		{"cache {\n prefetch 1 1m 9%\n}", `Corefile:3: cache: prefetch: want 10%..90%, got "9%"`},
		{"cache {\n prefetch 1 91%\n}", `Corefile:3: cache: prefetch: want 10%..90%, got "91%"`},
		{"cache {\n prefetch 1 10% 1m\n}", `Corefile:3: cache: prefetch: want 10%..90%, got "1m"`},
		{"cache {\n serve_stale x\n}", `Corefile:3: cache: serve_stale: want a duration such as 30s or 1h, got "x"`},
		{"cache {\n serve_stale -1s\n}", `Corefile:3: cache: serve_stale: want a duration such as 30s or 1h, got "-1s"`},
		{"cache {\n serve_stale 1h immediate 1500ms\n}", "Corefile:3: cache: serve_stale: want a TTL of whole seconds, got 1.5s"},
		{"cache {\n serve_stale 1h soon\n}", `Corefile:3: cache: serve_stale: want immediate or verify, got "soon"`},
		{"cache {\n serve_stale 1h verify x\n}", `Corefile:3: cache: serve_stale: want a duration such as 30s or 1h, got "x"`},
		{"cache {\n serve_stale 1h immediate 1s 1s 1s\n}", `Corefile:3: cache: serve_stale: got 5 arguments, usage: serve_stale [DURATION] [immediate|verify [TIMEOUT [REPLYTTL [RECHECK]]]]`},
		{"cache {\n serve_stale 1h verify 1s 1s 1s 1s\n}", `Corefile:3: cache: serve_stale: got 6 arguments, usage: serve_stale [DURATION] [immediate|verify [TIMEOUT [REPLYTTL [RECHECK]]]]`},
		{"cache {\n serve_stale_policy\n}", `Corefile:3: cache: serve_stale_policy: got no arguments, usage: serve_stale_policy prefer_positive`},
		{"cache {\n serve_stale\n serve_stale_policy negative\n}", `Corefile:4: cache: serve_stale_policy: want prefer_positive, got "negative"`},
		{"cache {\n serve_stale_policy prefer_positive\n}", `Corefile:3: cache: serve_stale_policy: needs serve_stale`},
		{"cache {\n serve_stale\n serve_stale_policy prefer_positive\n serve_stale_policy prefer_positive\n}", `Corefile:5: cache: serve_stale_policy: already given on line 4`},
		{"cache {\n servfail\n}", `Corefile:3: cache: servfail: got no arguments, usage: servfail DURATION`},
		{"cache {\n servfail 6m\n}", `Corefile:3: cache: servfail: want a duration of 0s..5m, got "6m"`},
		{"cache {\n disable\n}", `Corefile:3: cache: disable: got no arguments, usage: disable success|denial [ZONES...]`},
		{"cache {\n disable failure\n}", `Corefile:3: cache: disable: want success or denial, got "failure"`},
		{"cache {\n disable success 10.0.0.0/40\n}", `Corefile:3: cache: disable: "10.0.0.0/40" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8`},
		{"cache {\n keepttl 3\n}", `Corefile:3: cache: keepttl: want no argument, got 1`},
		{"cache {\n keepttl {\n x\n}\n}", `Corefile:3: cache: keepttl: takes no braces`},
	} {
		w := &harness{t: t}
		_, err := w.blocks(".:53 {\n" + test.text + "\n upstream a\n}\n")
		if err == nil || strings.TrimSpace(err.Error()) != test.want {
			t.Errorf("%s\n got %v\nwant %s", test.text, err, test.want)
		}
	}
}

// A zone that looks like a duration gets a warning, since a TTL was probably meant.
func TestSetupWarnsOfDuration(t *testing.T) {
	for text, want := range map[string]string{
		"cache 30s":         "Corefile:2: cache: 30s is a zone here, not a TTL: write a TTL as seconds without a unit",
		"cache 30":          "",
		"cache 30 30s":      "Corefile:2: cache: 30s is a zone here, not a TTL: write a TTL as seconds without a unit",
		"cache example.org": "",
	} {
		w := &harness{t: t, upstreams: map[string]*upstream{}}
		blocks, err := w.blocks(".:53 {\n" + text + "\n upstream a\n}\n")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got := ""
		for _, warning := range blocks[0].Warnings() {
			got += warning.Error()
		}
		if got != want {
			t.Errorf("%s: got the warning %q, want %q", text, got, want)
		}
	}
}

// The series have CoreDNS's names and labels, and the gauges end with the plan.
func TestMetricsLabels(t *testing.T) {
	w := newHarness(t, "example.org:53 example.net:53 {\n view v\n cache\n upstream a\n}\n")
	change := func(q *dns.Query) { q.Interface = 1 }
	for range 3 {
		w.ask(newQuery("www.example.org", 1), change)
	}
	const labels = `zones="example.org.,example.net.",view="v"}`
	for name, want := range map[string]string{
		`coredns_cache_requests_total{server="dns://:53",` + labels:                 "3",
		`coredns_cache_misses_total{server="dns://:53",` + labels:                   "1",
		`coredns_cache_hits_total{server="dns://:53",type="success",` + labels:      "2",
		`coredns_cache_hits_total{server="dns://:53",type="denial",` + labels:       "0",
		`coredns_cache_prefetch_total{server="dns://:53",` + labels:                 "0",
		`coredns_cache_drops_total{server="dns://:53",` + labels:                    "0",
		`coredns_cache_served_stale_total{server="dns://:53",` + labels:             "0",
		`coredns_cache_evictions_total{server="dns://:53",type="success",` + labels: "0",
		`coredns_cache_evictions_total{server="dns://:53",type="denial",` + labels:  "0",
		`coredns_cache_entries{server="dns://:53",type="success",` + labels:         "1",
		`coredns_cache_entries{server="dns://:53",type="denial",` + labels:          "0",
	} {
		if got := w.metric(name); got != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
	w.upstreams["a"].answer = answerWith(wire.NoError, "www.example.com. 300 IN A 192.0.2.1")
	w.ask(newQuery("x.example.org", 1), change)
	if got := w.metric(`coredns_cache_drops_total{server="dns://:53",` + labels); got != "1" {
		t.Errorf("%s drops, want 1", got)
	}
	w.load(".:53 {\n upstream a\n}\n")
	if got := w.metric(`coredns_cache_entries{server="dns://:53",type="success",` + labels); got != "" {
		t.Errorf("coredns_cache_entries after a reload without cache: got %s, want no series", got)
	}
}

// Answers of this server's own are neither hits nor misses.
func TestOwnAnswersNotCounted(t *testing.T) {
	w := newHarness(t, ".:53 {\n cache\n local\n upstream a\n}\n")
	w.local = func(q *dns.Query) dns.Verdict {
		if q.Type != wire.TypeAAAA {
			return dns.Next
		}
		if err := write(q, wire.NXDomain, ""); err != nil {
			t.Error(err)
		}
		return dns.Done
	}
	for range 2 {
		w.ask(newQuery("web.shop.svc.cluster.local", mdns.TypeAAAA))
		w.ask(newQuery("www.example.org", mdns.TypeA))
	}
	for name, want := range map[string]string{"requests": "2", "misses": "1"} {
		if got := w.metric(`coredns_cache_` + name + `_total{server="dns://:53",zones=".",view=""}`); got != want {
			t.Errorf("got %s %s, want %s", got, name, want)
		}
	}
}
