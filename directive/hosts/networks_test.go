package hosts

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// prefixes parses the addresses of a machine's interfaces.
func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

const localLines = `10.9.0.5 db.test
10.8.0.7 db.test
10.9.0.6 db.test
10.7.0.7 db.test far.test
10.7.0.8 far.test *.far.test
10.9.0.9 *.far.test
fd00:9::5 db.test
fd00:8::7 db.test
`

// dnsmasq 2.90 has the same answers: only the addresses in the network of the queried
// address, or all if there is none.
func TestLocalise(t *testing.T) {
	h := newHandler(t, localLines, ".")
	h.networks = watchNetworks(func() ([]netip.Prefix, error) {
		return prefixes("10.9.0.1/24", "10.8.0.1/24", "10.9.0.200/32", "10.7.0.1/8", "fd00:9::1/64"), nil
	}, chaintest.QuietLog())
	defer h.networks.Stop()
	a := newAsker(t, h)
	const all, v6 = " 10.9.0.5 10.8.0.7 10.9.0.6 10.7.0.7", " fd00:9::5 fd00:8::7"
	for _, c := range []struct{ asked, name, qtype, want string }{
		{"10.9.0.1", "db.test.", "A", " 10.9.0.5 10.9.0.6"},
		{"10.9.0.1", "db.test.", "AAAA", v6},
		{"10.9.0.1", "db.test.", "ANY", " 10.9.0.5 10.9.0.6" + v6},
		{"10.9.0.1", "far.test.", "A", " 10.7.0.7 10.7.0.8"},
		{"10.9.0.1", "x.far.test.", "A", " 10.9.0.9"},
		{"10.8.0.1", "db.test.", "A", " 10.8.0.7"},
		{"10.9.0.200", "db.test.", "A", all},
		{"10.7.0.1", "db.test.", "A", all}, // all are in 10.0.0.0/8
		{"10.9.0.2", "db.test.", "A", all}, // not an address of the machine
		{"fd00:9::1", "db.test.", "A", all},
		{"fd00:9::1", "db.test.", "AAAA", v6},
		{"10.9.0.1", "5.0.9.10.in-addr.arpa.", "PTR", " db.test."},
	} {
		a.local = netip.AddrPortFrom(netip.MustParseAddr(c.asked), 53)
		if got, want := a.digest(t, c.name, c.qtype), "NOERROR aa"+c.want; got != want {
			t.Errorf("at %s, %s %s: got %s, want %s", c.asked, c.name, c.qtype, got, want)
		}
	}
	a.local = netip.MustParseAddrPort("10.9.0.1:53")
	p := packet(t, "db.test.", "A")
	if n := testing.AllocsPerRun(100, func() { a.Serve(p, dns.UDP) }); n != 0 {
		t.Errorf("db.test. A: %v allocations, want 0", n)
	}
}

// The networks are read again when a query is sent to an unknown address, but not for
// each such query, and when they are old. They stay the same if that fails.
func TestNetworksChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var have atomic.Value
		have.Store(prefixes("10.9.0.1/24"))
		var reads atomic.Int64
		log := new(chaintest.Log)
		n := watchNetworks(func() ([]netip.Prefix, error) {
			reads.Add(1)
			if p := have.Load().([]netip.Prefix); len(p) > 0 {
				return p, nil
			}
			return nil, errors.New("no addresses")
		}, log.Logger())
		defer n.Stop()
		expect := func(asked string, want bool, wantReads int64) {
			t.Helper()
			q := dns.NewQuery(nil)
			q.Reset(nil, dns.UDP, time.Now())
			q.Local = netip.AddrPortFrom(netip.MustParseAddr(asked), 53)
			_, got := n.local(q, []byte{10, 8, 0, 9, 10, 9, 0, 9})
			synctest.Wait()
			if got != want || reads.Load() != wantReads {
				t.Errorf("%s: got %t after reading %d times, want %t after %d", asked, got, reads.Load(), want, wantReads)
			}
		}
		expect("10.9.0.1", true, 1)
		expect("10.8.0.1", false, 2)
		have.Store(prefixes("10.9.0.1/24", "10.8.0.1/24"))
		expect("10.8.0.1", false, 2) // they have just been read
		time.Sleep(networksInterval)
		synctest.Wait()
		expect("10.8.0.1", true, 3)
		have.Store(prefixes("10.9.0.1/30", "10.8.0.1/24"))
		time.Sleep(networksAge)
		expect("10.9.0.1", true, 3)
		time.Sleep(time.Second)
		expect("10.9.0.1", true, 4)
		expect("10.9.0.1", false, 4) // 10.9.0.9 is not in 10.9.0.0/30
		have.Store(prefixes())
		time.Sleep(networksAge + time.Second)
		expect("10.8.0.1", true, 5)
		expect("10.8.0.1", true, 5)
		if log.Count("WARN") != 1 || log.Count("error=\"no addresses\"") != 1 {
			t.Errorf("want one warning with error=\"no addresses\"; logged\n%s", log)
		}
	})
}
