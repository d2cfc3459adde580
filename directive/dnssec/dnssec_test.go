package dnssec_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

const zoneText = `@ 60 SOA ns host 1 2 3 4 60
@ 60 NS ns
www 60 A 192.0.2.1
many 60 A 192.0.2.2
*.any 60 A 192.0.2.3
_sip._tcp 60 SRV 0 0 5060 large
old 60 DNAME a23456789.b23456789.c23456789.d23456789.e23456789.f23456789.g23456789.h23456789.i23456789.j23456789.new
`

// start starts a server for example.org with a key of an algorithm.
func start(t testing.TB, algorithm uint8, bits int) (addr string, key *mdns.DNSKEY, registry *metrics.Registry) {
	t.Helper()
	dir, key := zoneAndKey(t, algorithm, bits)
	addr, registry = serveText(t, "example.org:53 {\n root "+dir+"\n file db\n dnssec {\n key file k\n cache_capacity 1000\n}\n}\n")
	return addr, key, registry
}

// zoneAndKey returns a folder with the file db of the zone, and those of its key k.
func zoneAndKey(t testing.TB, algorithm uint8, bits int) (dir string, key *mdns.DNSKEY) {
	t.Helper()
	dir = t.TempDir()
	key = &mdns.DNSKEY{Hdr: mdns.RR_Header{Name: "example.org.", Rrtype: mdns.TypeDNSKEY, Class: mdns.ClassINET, Ttl: 60}, Flags: 257, Protocol: 3, Algorithm: algorithm}
	private, err := key.Generate(bits)
	if err != nil {
		t.Fatal(err)
	}
	large := new(strings.Builder)
	for i := range 2000 {
		fmt.Fprintf(large, "large 60 A 10.0.%d.%d\n", i/250, i%250)
	}
	for name, text := range map[string]string{"k.key": key.String() + "\n", "k.private": key.PrivateKeyString(private), "db": zoneText + large.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, key
}

// serveText starts a server with a Corefile.
func serveText(t testing.TB, text string) (addr string, registry *metrics.Registry) {
	t.Helper()
	blocks, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	registry = new(metrics.Registry)
	plan, err := server.NewPlan(blocks, server.Options{
		Directives: builtin.Directives(), Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
		Log: slog.New(slog.DiscardHandler), Metrics: registry,
	})
	if err == nil {
		err = plan.Start(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plan.Stop(t.Context()) })
	return plan.Addresses()[0].String(), registry
}

func query(name string, t uint16) *mdns.Msg {
	m := new(mdns.Msg).SetQuestion(name, t)
	m.SetEdns0(1232, true)
	return m
}

// verify checks that each RRset of a section has a valid signature.
func verify(t *testing.T, key *mdns.DNSKEY, section []mdns.RR) {
	t.Helper()
	sets, sigs := map[string][]mdns.RR{}, map[string]*mdns.RRSIG{}
	for _, rr := range section {
		if sig, ok := rr.(*mdns.RRSIG); ok {
			sigs[sig.Hdr.Name+mdns.TypeToString[sig.TypeCovered]] = sig
		} else {
			k := rr.Header().Name + mdns.TypeToString[rr.Header().Rrtype]
			sets[k] = append(sets[k], rr)
		}
	}
	for k, set := range sets {
		if sigs[k] == nil {
			t.Errorf("%s: got no signature", k)
		} else if err := sigs[k].Verify(key, set); err != nil {
			t.Errorf("%s: got a signature with error %v", k, err)
		}
	}
}

// A key that is named more than once signs once.
func TestKeyNamedTwice(t *testing.T) {
	dir, _ := zoneAndKey(t, mdns.ECDSAP256SHA256, 256)
	addr, _ := serveText(t, "example.org:53 {\n root "+dir+"\n file db\n dnssec {\n key file k k.key\n key file k.private\n}\n}\n")
	m, _, err := (&mdns.Client{}).Exchange(query("example.org.", mdns.TypeDNSKEY), addr)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Answer) != 2 {
		t.Errorf("DNSKEY: got %v, want one record and one signature", m.Answer)
	}
}

// A large RRset is signed where all of it is sent, and its reply over UDP has TC.
func TestLargeRRset(t *testing.T) {
	addr, key, _ := start(t, mdns.ECDSAP256SHA256, 256)
	checkLarge(t, addr, key)
}

// checkLarge checks that the large RRset is truncated over UDP, and then complete and signed over TCP.
func checkLarge(t *testing.T, addr string, key *mdns.DNSKEY) {
	t.Helper()
	c := &mdns.Client{Timeout: 20 * time.Second}
	r, _, err := c.Exchange(query("large.example.org.", mdns.TypeA), addr)
	if err != nil || !r.Truncated {
		t.Errorf("over UDP: got error %v and\n%v\nwant TC", err, r)
	}
	c.Net = "tcp"
	r, _, err = c.Exchange(query("large.example.org.", mdns.TypeA), addr)
	if err != nil || r.Truncated || len(r.Answer) != 2001 {
		t.Fatalf("over TCP: got error %v and %d records, want 2000 with a signature", err, len(r.Answer))
	}
	verify(t, key, r.Answer)
}

// An answer whose additional records alone do not fit is signed, without them.
func TestLargeAdditionalSection(t *testing.T) {
	addr, key, _ := start(t, mdns.ECDSAP256SHA256, 256)
	r, _, err := (&mdns.Client{Timeout: 20 * time.Second}).Exchange(query("_sip._tcp.example.org.", mdns.TypeSRV), addr)
	if err != nil || r.Truncated || len(r.Answer) != 2 {
		t.Fatalf("over UDP: got error %v and\n%v\nwant an SRV record with a signature, without TC", err, r)
	}
	verify(t, key, r.Answer)
}

// The DNAME record that makes too long a name is signed.
func TestNameTooLongSigned(t *testing.T) {
	addr, key, _ := start(t, mdns.ECDSAP256SHA256, 256)
	name := strings.Repeat("x23456789.", 14) + "old.example.org."
	r, _, err := (&mdns.Client{Timeout: 20 * time.Second}).Exchange(query(name, mdns.TypeA), addr)
	if err != nil || r.Rcode != mdns.RcodeYXDomain || len(r.Answer) != 2 {
		t.Fatalf("got error %v and\n%v\nwant YXDOMAIN, and a DNAME record with a signature", err, r)
	}
	verify(t, key, r.Answer)
}

// A cache has the signatures of an upstream's answer that does not fit into the reply of its first client.
func TestLargeAnswerOfUpstreamKept(t *testing.T) {
	dir, key := zoneAndKey(t, mdns.ECDSAP256SHA256, 256)
	upstream, _ := serveText(t, "example.org:53 {\n root "+dir+"\n file db\n}\n")
	addr, _ := serveText(t, "example.org:53 {\n root "+dir+"\n cache\n dnssec {\n key file k\n}\n forward . "+upstream+"\n}\n")
	checkLarge(t, addr, key)
}

// Many clients that query names for the first time at the same time get valid answers.
func TestConcurrentFirstQueries(t *testing.T) {
	addr, key, registry := start(t, mdns.ED25519, 256)
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for j := range 20 {
				name := fmt.Sprintf("n%d.any.example.org.", (i*7+j)%20)
				r, _, err := (&mdns.Client{Timeout: 20 * time.Second}).Exchange(query(name, mdns.TypeA), addr)
				if err != nil || len(r.Answer) != 2 {
					t.Errorf("%s: got error %v and\n%v\nwant an address and a signature", name, err, r)
					continue
				}
				verify(t, key, r.Answer)
			}
		})
	}
	running.Wait()
	var text strings.Builder
	if err := registry.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`coredns_dnssec_cache_entries{server="dns://127.0.0.1:0",type="signature"} 20`, `coredns_dnssec_cache_hits_total{server="dns://127.0.0.1:0"}`, `coredns_dnssec_cache_misses_total{server="dns://127.0.0.1:0"}`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("metrics lack %s:\n%s", want, &text)
		}
	}
}

// While a client floods the server with queries for random names, whose signatures take
// long, another client gets signatures for new names, and names with signatures are
// answered at once.
func TestRandomNamesFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	addr, key, _ := start(t, mdns.RSASHA256, 2048)
	c := &mdns.Client{Timeout: 20 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}}}
	ask := func(name string) time.Duration {
		t.Helper()
		r, took, err := c.Exchange(query(name, mdns.TypeA), addr)
		if err != nil || r.Rcode != mdns.RcodeSuccess {
			t.Errorf("%s: got error %v and\n%v\nwant NOERROR", name, err, r)
		} else {
			verify(t, key, append(r.Answer, r.Ns...))
		}
		return took
	}
	ask("www.example.org.")
	var done atomic.Bool
	var flood sync.WaitGroup
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 3)}, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	replies := [16]int{}
	window := make(chan struct{}, 200) // more than may wait for one client, and no more than the socket's buffer holds
	flood.Go(func() {
		buf := make([]byte, 2048)
		for !done.Load() {
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if n, err := conn.Read(buf); err == nil && n > 3 {
				replies[buf[3]&15]++
				<-window
			}
		}
	})
	flood.Go(func() {
		for i := 0; !done.Load(); i++ {
			select {
			case window <- struct{}{}:
				packet, _ := query(fmt.Sprintf("x%d.example.org.", i), mdns.TypeA).Pack()
				_, _ = conn.Write(packet)
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	for i := range 30 {
		ask(fmt.Sprintf("new%d.any.example.org.", i))
		ask("www.example.org.")
	}
	done.Store(true)
	flood.Wait()
	t.Logf("the flood got %d NOERROR and %d SERVFAIL", replies[0], replies[2])
	if replies[2] == 0 {
		t.Error("the flood got no SERVFAIL, want some: its signatures are not bounded")
	}
}

// A signed answer whose signatures are kept needs few allocations.
func BenchmarkKept(b *testing.B) {
	addr, _, _ := start(b, mdns.ECDSAP256SHA256, 256)
	c := &mdns.Client{Timeout: 20 * time.Second}
	m := query("www.example.org.", mdns.TypeA)
	for b.Loop() {
		if _, _, err := c.Exchange(m, addr); err != nil {
			b.Fatal(err)
		}
	}
}
