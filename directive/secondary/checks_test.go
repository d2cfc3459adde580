package secondary

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// However many NOTIFY messages arrive, a zone is checked once a second, the first time at once,
// and once more after the last message.
func TestNotifyFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := follow(t, 0)
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
		all := new(checks)
		var primaries []*scriptedPrimary
		var copies []*zoneCopy
		for range zones {
			c, p, _ := follow(t, 0)
			c.checks = all
			primaries, copies = append(primaries, p), append(copies, c)
		}
		for _, p := range primaries {
			p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 5"}})
		}
		total := 0
		for range 10 * 20 { // ten seconds
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
		if total < 199 || total > 202 {
			t.Errorf("got %d checks of %d zones in 10 s, want 200", total, zones)
		}
	})
}

// Messages for thousands of other zones do not delay the refresh of a zone that got one, too.
func TestNotifyFloodKeepsRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := follow(t, 0)
		p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 5"}})
		time.Sleep(2 * time.Hour)
		regular := strings.Count(p.asked(), "SOA")
		for range 10_000_000 {
			c.checks.reserve()
		}
		c.notify()
		time.Sleep(2 * time.Hour)
		if got := strings.Count(p.asked(), "SOA") - regular; got < regular/2 {
			t.Errorf("got %d checks in two hours, want about %d as before\n%s", got, regular, log)
		}
	})
}
