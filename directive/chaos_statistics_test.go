package directive

import (
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// runStatistics starts a block with statistics and returns a function that returns
// the TXT record of NAME.bind.
func runStatistics(t *testing.T, add ...any) (r *testBlock, txt func(name string) []string) {
	t.Helper()
	r = run(t, ".:53 {\nchaos {\nstatistics\n}\nwhoami\n}", add...)
	s := config.Find[*statistics](r.block)[0]
	return r, func(name string) []string {
		t.Helper()
		n, _ := wire.ParseName(name + ".bind")
		p := wire.AppendRequest(nil, 1, 0, []byte(n), wire.TypeTXT)
		p[len(p)-1] = byte(wire.ClassCH)
		q := dns.NewQuery(nil)
		q.Reset(p, dns.UDP, q.Start)
		if fault := q.Parse(p); fault != wire.NoFault {
			t.Fatal(fault)
		}
		q.Answer.Reset(nil, q.Question())
		if verdict := s.ServeDNS(q); verdict != dns.Wait {
			t.Fatalf("%s.bind: got verdict %v, want Wait", name, verdict)
		}
		if err := s.Resolve(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		wire.PutHeader(q.Answer.Buf, 1, wire.FlagQR, 1, q.Answer.Count, 0)
		m := new(mdns.Msg)
		if err := m.Unpack(q.Answer.Buf); err != nil {
			t.Fatal(err)
		}
		if len(m.Answer) != 1 || m.Answer[0].Header().Class != mdns.ClassCHAOS || m.Answer[0].Header().Ttl != 0 {
			t.Fatalf("%s.bind: got\n%v\nwant one TXT record of class CH with TTL 0", name, m)
		}
		return m.Answer[0].(*mdns.TXT).Txt
	}
}

func TestStatistics(t *testing.T) {
	h := &fixedVerdict{verdict: dns.Next}
	far := strings.Repeat("x", 300)
	one := &fakeForward{from: "\x03one\x00", sent: []string{"192.0.2.1:53 18446744073709551615 3", "[2001:db8::1]:5353 1 0", "https://dns.example/dns-query 4 2"}}
	two := &fakeForward{from: "\x03two\x00", sent: []string{"192.0.2.1:53 18446744073709551615 3", "https://" + far + " 18446744073709551615 18446744073709551615"}}
	r, txt := runStatistics(t, h, &fakeCache{capacity: 1000, inserted: 20, evicted: 3}, one, two)
	wantTXT := func(name string, want ...string) {
		t.Helper()
		if got := txt(name); !slices.Equal(got, want) {
			t.Errorf("%s.bind: got %q, want %q", name, got, want)
		}
	}
	wantTXT("hits", "0")
	wantTXT("misses", "0")
	r.exchange(packet(t, "a.one", wire.TypeA), dns.UDP, client)
	r.exchange(packet(t, "a.two", wire.TypeA), dns.TCP, client)
	r.exchange(packet(t, "a.two", wire.TypeAAAA), dns.UDP, client) // from the cache
	r.exchange(packet(t, "a.three", wire.TypeA), dns.UDP, client)
	h.verdict = dns.Done
	r.exchange(packet(t, "a.one", wire.TypeA), dns.UDP, client)
	h.verdict = dns.Drop
	r.exchange(packet(t, "a.one", wire.TypeA), dns.UDP, client)
	wantTXT("hits", "3")
	wantTXT("misses", "2")
	wantTXT("insertions", "20")
	wantTXT("evictions", "3")
	wantTXT("cachesize", "1000")
	wantTXT("auth", "0")
	wantTXT("CopyRight", "Copyright (c) The Seamark authors")
	wantTXT("servers", "192.0.2.1#53 18446744073709551615 3", "2001:db8::1#5353 1 0", "https://dns.example/dns-query 4 2",
		"https://"+far[:192]+" 18446744073709551615 18446744073709551615")
	const wantMetrics = `seamark_chaos_hits_total{server="dns://:53",zone=".",view=""} 3
seamark_chaos_misses_total{server="dns://:53",zone=".",view=""} 2
`
	if got := r.metrics("seamark_chaos"); got != wantMetrics {
		t.Errorf("got metrics\n%swant\n%s", got, wantMetrics)
	}

	// A block without cache and forward.
	_, txt = runStatistics(t)
	for _, name := range []string{"insertions", "evictions", "cachesize", "misses"} {
		wantTXT(name, "0")
	}
	wantTXT("servers", "")
}

// With statistics the names of chaos stay. Without it there are no counters.
func TestStatisticsOption(t *testing.T) {
	for corefile, waits := range map[string]bool{".:53 {\nchaos v a\n}": false, ".:53 {\nchaos v a {\nstatistics\n}\n}": true} {
		r := run(t, corefile)
		if step := r.block.Chain.Steps()[0]; step.MayWait != waits || step.Name != "chaos" {
			t.Errorf("%s\ngot the step %+v, want chaos with MayWait %v", corefile, step, waits)
		}
		if got := r.metrics("seamark_chaos"); (got != "") != waits {
			t.Errorf("%s\ngot metrics %q, want some: %v", corefile, got, waits)
		}
		p := packet(t, "version.bind", wire.TypeTXT)
		p[len(p)-1] = byte(wire.ClassCH)
		m := new(mdns.Msg)
		if err := m.Unpack(r.exchange(p, dns.UDP, client)); err != nil || len(m.Answer) != 1 || m.Answer[0].(*mdns.TXT).Txt[0] != "v" {
			t.Errorf("%s\nversion.bind: got %v, error %v; want one TXT record \"v\"", corefile, m, err)
		}
	}
}
