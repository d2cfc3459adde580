package secondary

import (
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// An answering is a handler below a Secondary, whose answers may be repeated for an hour.
type answering struct{}

func (answering) ServeDNS(q *dns.Query) dns.Verdict {
	q.AllowRepeat(dns.Repeat{For: time.Hour})
	return dns.Done
}

func (answering) Repetition() dns.Repetition { return dns.Repetition{} }

// The kernel of a node may repeat answers for names outside the zones, and none for names in them, which change
// with the next version, also if another directive has answered. With catalogs it repeats none.
func TestSecondaryRepeats(t *testing.T) {
	c := withZone(t, options{origin: origin}, "@ 5 SOA 5\na 5 A 192.0.2.1\n@ 5 SOA 5", time.Now())
	empty := newCopy(options{origin: "\x03net\x00"}, nil, chaintest.QuietLog(), room{}, newServer(chaintest.QuietLog(), nil))
	for _, catalog := range []bool{false, true} {
		s := &Secondary{static: new(zoneSet)}
		s.zones.Set(wire.Name(origin), &servedZone{copy: c, fallthru: new(config.Fallthrough)})
		s.zones.Set("\x03net\x00", &servedZone{copy: empty, interval: time.Second, fallthru: new(config.Fallthrough)})
		if catalog {
			s.catalogs = new(catalogs)
			s.catalogs.current.Store(new(zoneSet))
		}

		var repeated int
		mux := dns.NewMux(dns.NewParkingLot(1), nil)
		if err := mux.Route("\x00", chaintest.NewChain("secondary", s, "below", answering{})); err != nil {
			t.Fatal(err)
		}
		mux.Repeat(func(*dns.Query) { repeated++ }, func() {})
		server := chaintest.NewServer(t, nil)
		server.Port.Swap(mux)
		for name, want := range map[string]int{"a.example.org.": 0, "x.example.org.": 0, "www.example.net.": 0, "www.example.com.": 1} {
			if catalog {
				want = 0
			}
			repeated = 0
			server.Ask(chaintest.Query(name, "A"), dns.UDP)
			if repeated != want {
				t.Errorf("%s, with a catalog: %v: repeated %d times, want %d", name, catalog, repeated, want)
			}
		}
	}
}
