package secondary

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/zone"
)

// However many NOTIFY messages arrive, a zone is checked once a second, the first time at once,
// and once more after the last message.
// See NSD 4.15 in docs/reference/advisories.md.
func TestNotifyFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := startCopy(t, 0)
		p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 5"}})
		time.Sleep(5 * time.Second)
		c.notify()
		time.Sleep(time.Millisecond)
		if got := p.asked(); got != "SOA" {
			t.Errorf("after one message: got queries for %q at once, want SOA", got)
		}
		for range 10_000 {
			c.notify()
			time.Sleep(time.Millisecond)
		}
		if got := strings.Count(p.asked(), "SOA"); got != 11 {
			t.Errorf("10,000 messages in 10 s: got %d checks, want one and 10 more\n%s", got, log)
		}
		p.set(0, map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {"@ 5 SOA 6\na 5 A 192.0.2.1\n@ 5 SOA 6"}})
		c.notify()
		time.Sleep(2 * time.Second)
		if got := serialOf(c); got != 6 {
			t.Errorf("after the last message: got serial number %d, want 6\n%s", got, log)
		}
	})
}

// All zones together are checked 20 times a second, and each in its turn.
func TestNotifyManyZones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const zones = 100
		all := newServer(chaintest.QuietLog(), nil)
		var primaries []*scriptedPrimary
		var copies []*zoneCopy
		for range zones {
			c, p, _ := startCopy(t, 0)
			c.server = all
			primaries, copies = append(primaries, p), append(copies, c)
		}
		for _, p := range primaries {
			p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 5"}})
		}
		flood := func(seconds int) (total int) {
			for range seconds * 20 {
				for _, c := range copies {
					c.notify()
				}
				time.Sleep(50 * time.Millisecond)
			}
			for i, p := range primaries {
				n := strings.Count(p.asked(), "SOA")
				if total += n; n == 0 {
					t.Errorf("zone %d was not checked", i)
				}
			}
			return total
		}
		before := flood(6) // a refresh may be due meanwhile, which is no check, but none in the next ten seconds
		total := flood(10) - before
		if total < 199 || total > 202 {
			t.Errorf("got %d checks of %d zones in 10 s, want 200", total, zones)
		}
	})
}

// Messages for thousands of other zones do not delay the refresh of a zone that got one, too.
func TestNotifyFloodKeepsRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := startCopy(t, 0)
		p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 5"}})
		time.Sleep(2 * time.Hour)
		regular := strings.Count(p.asked(), "SOA")
		for range 150_000 {
			c.server.enter(&turn{c.clients[0].addr.Addr(), true, make(chan struct{})})
		}
		time.Sleep(time.Minute)
		c.notify() // for a version that it has
		time.Sleep(2 * time.Second)
		for range 2 * 60 * 60 / 8 {
			c.notify()
			time.Sleep(8 * time.Second)
		}
		if got := strings.Count(p.asked(), "SOA") - regular; got < regular/2 {
			t.Errorf("got %d checks in two hours, want about %d as before\n%s", got, regular, log)
		}
	})
}

// A flood of forged messages for a thousand zones delays the check of another zone, of the same
// primary or of another one, by less than a second.
func TestForgedNotifyDelaysGenuine(t *testing.T) {
	for _, primary := range []string{"192.0.2.53", "192.0.2.54"} {
		for _, before := range []time.Duration{100 * time.Millisecond, 20 * time.Second, 10 * time.Minute} {
			t.Run(primary+" "+before.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, p, log := startCopy(t, 0)
					ctx, cancel := context.WithCancel(t.Context())
					var forged sync.WaitGroup
					for range 1000 {
						other := &schedule{copy: &zoneCopy{
							server: c.server, clients: []*client{{addr: netip.MustParseAddrPort(primary + ":53")}},
						}, zone: new(zone.Zone), next: time.Now().Add(24 * time.Hour)}
						forged.Go(func() {
							for other.awaitCheck(ctx) {
								other.asked = time.Now() // the zone has not changed
							}
						})
					}
					time.Sleep(before)
					p.set(0, map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {"@ 5 SOA 6\na 5 A 192.0.2.1\n@ 5 SOA 6"}})
					c.notify()
					time.Sleep(time.Second)
					if got := serialOf(c); got != 6 {
						t.Errorf("a second after the message: got serial number %d, want 6\n%s", got, log)
					}
					cancel()
					forged.Wait()
				})
			})
		}
	}
}

// Among many zones that have changed, none waits longer than for a turn of each.
func TestNotifyEveryZoneHasTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := new(checks)
		first := &turn{netip.MustParseAddr("192.0.2.53"), false, make(chan struct{})}
		idle := &turn{first.primary, true, make(chan struct{})}
		for i := range 1000 {
			all.enter(&turn{first.primary, false, make(chan struct{})})
			switch i {
			case 500:
				all.enter(first)
				all.enter(idle)
			case 501:
				time.Sleep(time.Millisecond)
			}
		}
		for range 4000 { // another changes meanwhile, in each turn
			all.enter(&turn{first.primary, false, make(chan struct{})})
			time.Sleep(checkInterval)
		}
		for name, t2 := range map[string]*turn{"urgent": first, "idle": idle} {
			select {
			case <-t2.granted:
			default:
				t.Errorf("the %s zone had no turn in 4000", name)
			}
		}
	})
}
