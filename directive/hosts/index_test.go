package hosts

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// of is a handler of lines in some zones.
func of(t testing.TB, lines string, zones ...string) *Handler {
	t.Helper()
	h := &Handler{ttl: 60}
	from := source{reverse: true, inline: []text{{name: "Corefile", lines: lines}}}
	for _, z := range zones {
		name, err := wire.ParseName(z)
		if err != nil {
			t.Fatal(err)
		}
		from.zones = append(from.zones, name)
		h.zones = append(h.zones, zone{name, name.Labels()})
	}
	slices.SortStableFunc(h.zones, func(a, b zone) int { return b.labels - a.labels })
	h.table = newTable(from, quietLog(), newCount(new(metrics.Registry)))
	return h
}

func TestAnswers(t *testing.T) {
	const lines = "10.0.0.1 a.b.example.test *.example.test\nfd00::1 a.b.example.test\n10.0.0.2 example.test outside.test\n10.0.0.1 second.example.test\n0.0.0.0 1.0.0.10.in-addr.arpa.example.test\n"
	a := newAsker(t, of(t, lines, "example.test", "sub.example.test"))
	for _, c := range []struct{ name, qtype, want string }{
		{"a.b.example.test.", "A", "NOERROR aa 10.0.0.1"},
		{"a.b.example.test.", "AAAA", "NOERROR aa fd00::1"},
		{"a.b.example.test.", "ANY", "NOERROR aa 10.0.0.1 fd00::1"},
		{"a.b.example.test.", "PTR", "NOERROR aa"},
		{"b.example.test.", "A", "NOERROR aa"},
		{"x.b.example.test.", "A", "NXDOMAIN aa"},
		{"example.test.", "A", "NOERROR aa 10.0.0.2"},
		{"sub.example.test.", "A", "NOERROR aa"},
		{"x.sub.example.test.", "A", "NXDOMAIN aa"},
		{"x.y.example.test.", "A", "NOERROR aa 10.0.0.1"},
		{strings.Repeat("x.", 120) + "example.test.", "A", "NOERROR aa 10.0.0.1"},
		{"outside.test.", "A", "REFUSED"},
		{"test.", "A", "REFUSED"},
		{".", "A", "REFUSED"},
		{"1.0.0.10.in-addr.arpa.", "PTR", "NOERROR aa a.b.example.test. second.example.test."},
		{"1.0.0.10.in-addr.arpa.", "A", "NOERROR aa"},
		{"2.0.0.10.in-addr.arpa.", "PTR", "NOERROR aa example.test."},
		{"01.0.0.10.in-addr.arpa.", "PTR", "REFUSED"},
		{"256.0.0.10.in-addr.arpa.", "PTR", "REFUSED"},
		{"0.0.10.in-addr.arpa.", "PTR", "REFUSED"},
		{"x.1.0.0.10.in-addr.arpa.", "PTR", "REFUSED"},
		{"in-addr.arpa.", "PTR", "REFUSED"},
		{"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.D.F.ip6.arpa.", "PTR", "NOERROR aa a.b.example.test."},
		{"2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", "PTR", "REFUSED"},
		{"g.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", "PTR", "REFUSED"},
		// the address of an IPv4 host, written as IPv6: another name
		{"1.0.0.0.0.0.a.0.f.f.f.f.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.", "PTR", "REFUSED"},
		{"1.0.0.10.in-addr.arpa.example.test.", "A", "NOERROR aa 0.0.0.0"},
	} {
		if got := a.digest(t, c.name, c.qtype); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.name, c.qtype, got, c.want)
		}
	}
}

// A model answers as RFC 4592 says, by looking at every line.
func model(lines map[string][]string, zone, name string) (addrs []string, found found) {
	if addrs, ok := lines[name]; ok {
		return addrs, present
	}
	exists := func(name string) bool {
		if _, ok := lines[name]; ok || name == zone {
			return true
		}
		for other := range lines {
			if strings.HasSuffix(other, "."+name) {
				return true
			}
		}
		return false
	}
	if exists(name) {
		return nil, empty
	}
	encloser := name
	for !exists(encloser) {
		_, encloser, _ = strings.Cut(encloser, ".")
	}
	if addrs, ok := lines["*."+encloser]; ok {
		return addrs, present
	}
	return nil, missing
}

func TestIndexAgainstModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	name := func(wild bool) string {
		var labels []string
		for range 1 + r.IntN(4) {
			labels = append(labels, string(rune('a'+r.IntN(3))))
		}
		if wild && r.IntN(4) == 0 {
			labels[0] = "*"
		}
		return strings.Join(labels, ".") + ".test."
	}
	for range 300 {
		lines, text := map[string][]string{}, ""
		for range r.IntN(12) {
			n, addr := name(true), fmt.Sprintf("10.0.0.%d", r.IntN(5))
			text += addr + " " + n + "\n"
			if !slices.Contains(lines[n], addr) {
				lines[n] = append(lines[n], addr)
			}
		}
		a := newAsker(t, of(t, text, "test"))
		for range 50 {
			n := name(false)
			addrs, found := model(lines, "test.", n)
			want := strings.Join(append([]string{[]string{"NXDOMAIN aa", "NOERROR aa", "NOERROR aa"}[found]}, addrs...), " ")
			if got := a.digest(t, n, "A"); got != want {
				t.Fatalf("%s: got %s, want %s\n%s", n, got, want, text)
			}
		}
	}
}

// Many addresses of one name, and many names of one address: as many as a reply
// may hold, with TC, at a cost that does not grow with them.
func TestManyOfOne(t *testing.T) {
	const n = 100_000
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "10.%d.%d.%d one.test\n127.0.0.1 n%d.test\n", i>>16, i>>8&255, i&255, i)
		if i < 20 {
			fmt.Fprintf(&text, "127.0.0.2 few%d.test\n", i)
		}
	}
	a := newAsker(t, of(t, text.String(), "test"))
	for _, proto := range []dns.Proto{dns.UDP, dns.TCP} {
		for _, q := range []string{"one.test. A", "one.test. ANY", "1.0.0.127.in-addr.arpa. PTR"} {
			name, qtype, _ := strings.Cut(q, " ")
			m := a.ask(t, name, qtype, proto)
			if !m.Truncated || len(m.Answer) == 0 || m.Rcode != mdns.RcodeSuccess {
				t.Errorf("%s over %v: %d answers, tc %t", q, proto, len(m.Answer), m.Truncated)
			}
		}
	}
	if buf := cap(a.query.Answer.Buf); buf > 1<<20 {
		t.Errorf("an answer took %d bytes of memory", buf)
	}
	// Larger than 512 bytes before it is compressed, and smaller afterwards.
	if m := a.ask(t, "2.0.0.127.in-addr.arpa.", "PTR", dns.UDP); m.Truncated || len(m.Answer) != 20 {
		t.Errorf("%d answers, tc %t", len(m.Answer), m.Truncated)
	}
}

// An answer allocates nothing, whatever it is.
func TestAnswersAllocateNothing(t *testing.T) {
	a := newAsker(t, of(t, "10.0.0.1 a.example.test b.example.test\nfd00::1 a.example.test\n10.0.0.2 *.w.example.test\n", "example.test"))
	for _, q := range []string{
		"a.example.test. A", "a.example.test. AAAA", "a.example.test. ANY", "a.example.test. MX", "b.example.test. AAAA",
		"nobody.example.test. A", "x.y.w.example.test. A", "1.0.0.10.in-addr.arpa. PTR", "9.0.0.10.in-addr.arpa. PTR",
		"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. PTR", "other.test. A",
	} {
		name, qtype, _ := strings.Cut(q, " ")
		p := packet(t, name, qtype)
		if n := testing.AllocsPerRun(100, func() { a.send(p, dns.UDP) }); n != 0 {
			t.Errorf("%s: %v allocations", q, n)
		}
		if len(a.query.Reply()) == 0 {
			t.Errorf("%s: no reply", q)
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	lines := millionLines(200_000)
	a := newAsker(b, of(b, lines+"10.0.0.2 *.w.test\n", "test"))
	for _, q := range []string{"host-1234.zone-34.test. A", "nobody.zone-34.test. A", "x.y.w.test. A", "210.4.0.10.in-addr.arpa. PTR"} {
		b.Run(q, func(b *testing.B) {
			name, qtype, _ := strings.Cut(q, " ")
			p := packet(b, name, qtype)
			b.ReportAllocs()
			for b.Loop() {
				a.send(p, dns.UDP)
			}
		})
	}
}

// millionLines has n lines, each of an address and a name of its own.
func millionLines(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "10.%d.%d.%d host-%d.zone-%d.test\n", i>>16, i>>8&255, i&255, i, i%1000)
	}
	return text.String()
}

func BenchmarkMillionLines(b *testing.B) {
	lines := millionLines(1_000_000)
	b.SetBytes(int64(len(lines)))
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		begin := time.Now()
		builder := newBuilder([]wire.Name{wire.Root}, true)
		builder.expect(1_000_000, len(lines))
		parse(lines, "", func(addr netip.Addr, name []byte) { builder.add(addr, name) }, func(complaint) {})
		x := builder.index()
		b.ReportMetric(time.Since(begin).Seconds(), "s/load")
		builder = nil
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
		b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/1e6, "MB-allocated")
		runtime.KeepAlive(x)
	}
}
