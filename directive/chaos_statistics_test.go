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

// chaosed runs a block with statistics and gives what it says for NAME.bind.
func chaosed(t *testing.T, add ...any) (r *running, tell func(name string) []string) {
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
			t.Fatalf("%s: %v, want to wait", name, verdict)
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
			t.Fatalf("%s: %v", name, m)
		}
		return m.Answer[0].(*mdns.TXT).Txt
	}
}

func TestStatistics(t *testing.T) {
	h := &says{verdict: dns.Next}
	far := strings.Repeat("x", 300)
	one := &elsewhere{from: "\x03one\x00", told: []string{"192.0.2.1:53 18446744073709551615 3", "[2001:db8::1]:5353 1 0", "https://dns.example/dns-query 4 2"}}
	two := &elsewhere{from: "\x03two\x00", told: []string{"192.0.2.1:53 18446744073709551615 3", "https://" + far + " 18446744073709551615 18446744073709551615"}}
	r, tell := chaosed(t, h, &remembering{capacity: 1000, inserted: 20, evicted: 3}, one, two)
	wants := func(name string, want ...string) {
		t.Helper()
		if got := tell(name); !slices.Equal(got, want) {
			t.Errorf("%s.bind: got %q, want %q", name, got, want)
		}
	}
	wants("hits", "0")
	wants("misses", "0")
	r.ask(packet(t, "a.one", wire.TypeA), dns.UDP, client)
	r.ask(packet(t, "a.two", wire.TypeA), dns.TCP, client)
	r.ask(packet(t, "a.two", wire.TypeAAAA), dns.UDP, client) // from memory
	r.ask(packet(t, "a.three", wire.TypeA), dns.UDP, client)
	h.verdict = dns.Done
	r.ask(packet(t, "a.one", wire.TypeA), dns.UDP, client)
	h.verdict = dns.Drop
	r.ask(packet(t, "a.one", wire.TypeA), dns.UDP, client)
	wants("hits", "3")
	wants("misses", "2")
	wants("insertions", "20")
	wants("evictions", "3")
	wants("cachesize", "1000")
	wants("auth", "0")
	wants("CopyRight", "Copyright (c) The Seamark authors")
	wants("servers", "192.0.2.1#53 18446744073709551615 3", "2001:db8::1#5353 1 0", "https://dns.example/dns-query 4 2",
		"https://"+far[:192]+" 18446744073709551615 18446744073709551615")
	if got := r.metrics("seamark_chaos"); got != `seamark_chaos_hits_total{server="dns://:53",zone=".",view=""} 3
seamark_chaos_misses_total{server="dns://:53",zone=".",view=""} 2
` {
		t.Errorf("got %s", got)
	}

	// A block that has neither cache nor forward.
	_, tell = chaosed(t)
	for _, name := range []string{"insertions", "evictions", "cachesize", "misses"} {
		wants(name, "0")
	}
	wants("servers", "")
}

// What chaos says without them is there, and without them nothing else is.
func TestStatisticsBesideChaos(t *testing.T) {
	for corefile, waits := range map[string]bool{".:53 {\nchaos v a\n}": false, ".:53 {\nchaos v a {\nstatistics\n}\n}": true} {
		r := run(t, corefile)
		if step := r.block.Chain.Steps()[0]; step.MayWait != waits || step.Name != "chaos" {
			t.Errorf("%s: %+v", corefile, step)
		}
		if got := r.metrics("seamark_chaos"); (got != "") != waits {
			t.Errorf("%s: counts %q", corefile, got)
		}
		p := packet(t, "version.bind", wire.TypeTXT)
		p[len(p)-1] = byte(wire.ClassCH)
		m := new(mdns.Msg)
		if err := m.Unpack(r.ask(p, dns.UDP, client)); err != nil || len(m.Answer) != 1 || m.Answer[0].(*mdns.TXT).Txt[0] != "v" {
			t.Errorf("%s: %v %v", corefile, err, m)
		}
	}
}
