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

	"github.com/seamark/seamark/directive/internal/hostsfile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// newHandler returns a Handler of lines in some zones.
func newHandler(t testing.TB, lines string, zones ...string) *Handler {
	t.Helper()
	h := &Handler{ttl: 60}
	from := source{reverse: true, inline: []text{{name: "Corefile", lines: lines}}}
	for _, z := range zones {
		name, err := wire.ParseName(z)
		if err != nil {
			t.Fatal(err)
		}
		from.zones = append(from.zones, name)
		h.zones.Set(name, struct{}{})
	}
	h.table = newTable(from, chaintest.QuietLog(), new(metrics.Registry))
	return h
}

func TestAnswers(t *testing.T) {
	const lines = "10.0.0.1 a.b.example.test *.example.test\nfd00::1 a.b.example.test\n10.0.0.2 example.test outside.test\n10.0.0.1 second.example.test\n0.0.0.0 1.0.0.10.in-addr.arpa.example.test\n"
	a := newAsker(t, newHandler(t, lines, "example.test", "sub.example.test"))
	for _, c := range []struct{ name, qtype, want string }{
		{"a.b.example.test.", "A", "NOERROR aa 10.0.0.1"},
		{"a.b.example.test.", "AAAA", "NOERROR aa fd00::1"},
		{"a.b.example.test.", "ANY", "NOERROR aa 10.0.0.1 fd00::1"},
		{"a.b.example.test.", "PTR", "NOERROR aa"},
		{"b.example.test.", "TXT", "NOERROR aa"},
		{"x.b.example.test.", "A", "NXDOMAIN aa"},
		{"example.test.", "A", "NOERROR aa 10.0.0.2"},
		{"sub.example.test.", "A", "NOERROR aa 10.0.0.1"},
		{"b.example.test.", "A", "NOERROR aa 10.0.0.1"},
		{"x.sub.example.test.", "A", "NXDOMAIN aa"},
		{"x.example.test.", "A", "NOERROR aa 10.0.0.1"},
		{"x.y.example.test.", "A", "NXDOMAIN aa"},
		{"_acme-challenge.x.example.test.", "TXT", "NXDOMAIN aa"},
		{strings.Repeat("x.", 120) + "example.test.", "A", "NXDOMAIN aa"},
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
		// an IPv4-mapped IPv6 address: another name than that of the IPv4 address
		{"1.0.0.0.0.0.a.0.f.f.f.f.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.", "PTR", "REFUSED"},
		{"1.0.0.10.in-addr.arpa.example.test.", "A", "NOERROR aa 0.0.0.0"},
	} {
		if got := a.digest(t, c.name, c.qtype); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.name, c.qtype, got, c.want)
		}
	}
}

// model answers a query as CoreDNS's page of hosts says: * is exactly one label. It compares
// the name with every line.
func model(lines map[string][]string, zone, name string) (addrs []string, found found) {
	if addrs, ok := lines[name]; ok {
		return addrs, present
	}
	_, parent, _ := strings.Cut(name, ".")
	if addrs, ok := lines["*."+parent]; ok {
		return addrs, present
	}
	if name == zone {
		return nil, empty
	}
	for other := range lines {
		if strings.HasSuffix(other, "."+name) {
			return nil, empty
		}
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
		a := newAsker(t, newHandler(t, text, "test"))
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

// Of many addresses of one name, or many names of one address, an answer has as many
// as the reply can hold, and TC. Its cost does not depend on their number.
func TestManyAddressesAndNames(t *testing.T) {
	const n = 100_000
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "10.%d.%d.%d one.test\n127.0.0.1 n%d.test\n", i>>16, i>>8&255, i&255, i)
		if i < 20 {
			fmt.Fprintf(&text, "127.0.0.2 few%d.test\n", i)
		}
	}
	a := newAsker(t, newHandler(t, text.String(), "test"))
	for _, proto := range []dns.Proto{dns.UDP, dns.TCP} {
		for _, q := range []string{"one.test. A", "one.test. ANY", "1.0.0.127.in-addr.arpa. PTR"} {
			name, qtype, _ := strings.Cut(q, " ")
			m := a.ask(t, name, qtype, proto)
			if !m.Truncated || len(m.Answer) == 0 || m.Rcode != mdns.RcodeSuccess {
				t.Errorf("%s over %v: %s, %d answers, TC %t; want NOERROR, answers and TC", q, proto, mdns.RcodeToString[m.Rcode], len(m.Answer), m.Truncated)
			}
		}
	}
	if buf := cap(a.Last.Answer.Buf); buf > 1<<20 {
		t.Errorf("the answers needed a buffer of %d bytes, want at most 1 MB", buf)
	}
	// This answer fits into 512 bytes only after compression.
	if m := a.ask(t, "2.0.0.127.in-addr.arpa.", "PTR", dns.UDP); m.Truncated || len(m.Answer) != 20 {
		t.Errorf("2.0.0.127.in-addr.arpa. PTR: %d answers, TC %t; want 20 without TC", len(m.Answer), m.Truncated)
	}
}

// No answer allocates.
func TestAnswerAllocations(t *testing.T) {
	a := newAsker(t, newHandler(t, "10.0.0.1 a.example.test b.example.test\nfd00::1 a.example.test\n10.0.0.2 *.w.example.test\n", "example.test"))
	for _, q := range []string{
		"a.example.test. A", "a.example.test. AAAA", "a.example.test. ANY", "a.example.test. MX", "b.example.test. AAAA",
		"absent.example.test. A", "y.w.example.test. A", "x.y.w.example.test. A", "1.0.0.10.in-addr.arpa. PTR", "9.0.0.10.in-addr.arpa. PTR",
		"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. PTR", "other.test. A",
	} {
		name, qtype, _ := strings.Cut(q, " ")
		p := packet(t, name, qtype)
		if n := testing.AllocsPerRun(100, func() { a.Serve(p, dns.UDP) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", q, n)
		}
		if len(a.Last.Reply()) == 0 {
			t.Errorf("%s: got no reply, want one", q)
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	lines := distinctLines(200_000)
	a := newAsker(b, newHandler(b, lines+"10.0.0.2 *.w.test\n", "test"))
	for _, q := range []string{"host-1234.zone-34.test. A", "absent.zone-34.test. A", "y.w.test. A", "210.4.0.10.in-addr.arpa. PTR"} {
		b.Run(q, func(b *testing.B) {
			name, qtype, _ := strings.Cut(q, " ")
			p := packet(b, name, qtype)
			b.ReportAllocs()
			for b.Loop() {
				a.Serve(p, dns.UDP)
			}
		})
	}
}

// distinctLines returns n lines, each with another address and name.
func distinctLines(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "10.%d.%d.%d host-%d.zone-%d.test\n", i>>16, i>>8&255, i&255, i, i%1000)
	}
	return text.String()
}

func BenchmarkMillionLines(b *testing.B) {
	lines := distinctLines(1_000_000)
	b.SetBytes(int64(len(lines)))
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		begin := time.Now()
		builder := newBuilder([]wire.Name{wire.Root}, true)
		builder.expect(1_000_000, len(lines))
		hostsfile.Parse(lines, "", func(addr netip.Addr, name []byte) { builder.add(addr, name) }, func(hostsfile.Error) {})
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

// A name with many addresses costs no more than a reply has: localise finds the ones in
// a network by binary search, which compares as many as the logarithm of their number.
func TestWithin(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 600 {
		var v4 []byte
		var addrs []netip.Addr
		for range n {
			addr := netip.AddrFrom4([4]byte{10, byte(r.IntN(2)), byte(r.IntN(4)), byte(r.IntN(256))})
			if n%7 == 0 {
				addr = netip.AddrFrom4([4]byte{byte(255 * r.IntN(2)), 255, 255, byte(r.IntN(256))})
			}
			v4, addrs = append(v4, addr.AsSlice()...), append(addrs, addr)
		}
		sortAddresses(v4)
		slices.SortFunc(addrs, netip.Addr.Compare)
		for _, network := range prefixes("10.0.1.0/24", "10.1.2.128/25", "0.0.0.0/0", "255.255.255.0/24", "10.0.0.0/32", "0.0.0.0/8") {
			var want []byte
			for _, addr := range addrs {
				if network.Contains(addr) {
					want = append(want, addr.AsSlice()...)
				}
			}
			if got := within(v4, network); string(got) != string(want) {
				t.Fatalf("%d addresses in %v: got %v, want %v", n, network, got, want)
			}
		}
	}
}

// Localise of a name with many addresses answers with the addresses in the network.
func TestLocaliseManyAddresses(t *testing.T) {
	var text strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&text, "10.%d.%d.%d many.test\n", i>>16+1, i>>8&255, i&255)
	}
	text.WriteString("10.9.0.5 many.test\n10.9.0.4 many.test\n")
	h := newHandler(t, text.String(), "test")
	h.networks = watchNetworks(func() ([]netip.Prefix, error) { return prefixes("10.9.0.1/24", "192.0.2.1/24"), nil }, chaintest.QuietLog())
	defer h.networks.Stop()
	a := newAsker(t, h)
	a.local = netip.MustParseAddrPort("10.9.0.1:53")
	if got, want := a.digest(t, "many.test.", "A"), "NOERROR aa 10.9.0.4 10.9.0.5"; got != want {
		t.Errorf("many.test. A at %v: got %s, want %s", a.local, got, want)
	}
	a.local = netip.MustParseAddrPort("192.0.2.1:53")
	if m := a.ask(t, "many.test.", "A", dns.UDP); !m.Truncated || len(m.Answer) < 20 {
		t.Errorf("many.test. A at %v: %d answers, TC %t; want all that fit, with TC", a.local, len(m.Answer), m.Truncated)
	}
}
