package secondary

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/sys/health"
)

// While no primary replies, the intervals between attempts double from 250 ms up to RETRY,
// which is a minute here.
func TestRetryUnansweredDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := startCopy(t, 0)
		p.set(0, nil)
		c.notify()
		start := time.Now()
		// 0.25, 0.5, 1, 2, 4, 8, 16 and 32 seconds have passed after 63.75, less a tenth.
		for _, step := range []struct {
			after    time.Duration
			attempts int
		}{{200 * time.Millisecond, 1}, {time.Second, 3}, {8 * time.Second, 6}, {64 * time.Second, 9}, {264 * time.Second, 12}} {
			time.Sleep(step.after - time.Since(start))
			synctest.Wait()
			if got := strings.Count(p.asked(), "SOA"); got < step.attempts || got > step.attempts+2 {
				t.Errorf("%s later: got %d attempts, want %d, and two more at most\n%s", step.after, got, step.attempts, log)
			}
		}
	})
}

// A first transfer that fails is tried again until it works, however long that takes: the zone is served at most
// ten seconds after its primary answers.
func TestRetryFirstTransfer(t *testing.T) {
	for _, outage := range []time.Duration{time.Second, time.Minute, 3 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c, p, log := startEmptyCopy(t, 0, nil, nil)
			time.Sleep(outage)
			if n := len(strings.Fields(p.asked())); n < int(outage/(2*lastRetry)) || serialOf(c) != 0 {
				t.Errorf("after %v: got %d queries and serial number %d, want no zone", outage, n, serialOf(c))
			}

			p.set(0, firstReplies)
			time.Sleep(lastRetry + time.Second) // beside the attempt
			if got := serialOf(c); got != 5 {
				t.Errorf("after an outage of %v: got serial number %d, want 5\n%s", outage, got, log)
			}
		})
	}
}

// A primary that has restarted is asked at once, and the next failure begins with the
// shortest interval again.
func TestRetryAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := startCopy(t, 0)
		for serial, text := range []string{6: "6", 7: "7"} {
			if text == "" {
				continue
			}
			p.set(0, nil)
			c.notify()
			time.Sleep(time.Second)
			p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA " + text}, ixfr: {"@ 5 SOA " + text + "\n@ 5 SOA " + text}})
			time.Sleep(2 * time.Second)
			if got := serialOf(c); got != uint32(serial) {
				t.Errorf("2s after the primary has restarted: got serial number %d, want %d\n%s", got, serial, log)
			}
		}
	})
}

// A primary whose zone is rejected is asked again after RETRY, since each attempt costs a
// transfer.
func TestRetryRejectedZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := startCopy(t, 0)
		p.set(0, map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {"@ 5 SOA 6\nc 5 CNAME a\nc 5 CNAME b\n@ 5 SOA 6"}})
		c.notify()
		time.Sleep(50 * time.Second)
		if got, want := p.asked(), "SOA IXFR SOA AXFR"; got != want {
			t.Errorf("within RETRY: got queries for %s, want %s\n%s", got, want, log)
		}
	})
}

// What is reported of a zone that cannot be transferred is true before and after it has expired, and
// once it is served again.
func TestConditionsOfExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := startCopy(t, 0)
		synctest.Wait() // until the copy waits for its next refresh
		board := new(health.Board)
		c.health = board
		wants := func(when string, want ...string) {
			t.Helper()
			var got []string
			for _, condition := range board.Conditions() {
				text, _, _ := strings.Cut(condition.Text, ":")
				got = append(got, string(condition.Severity)+" "+text)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q\n%s", when, got, want, log)
			}
		}
		const zone = "the zone example.org. "

		p.set(0, nil)
		c.notify()
		time.Sleep(time.Minute)
		wants("while no primary replies", "warning "+zone+"cannot be transferred, and the last version serves")
		c.mu.Lock()
		c.until = time.Now()
		c.mu.Unlock()
		c.expire()
		wants("at the expiry", "critical "+zone+"has expired and is not served")
		time.Sleep(5 * time.Minute)
		wants("after it", "critical "+zone+"cannot be transferred and is not served", "critical "+zone+"has expired and is not served")

		p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 4"}})
		time.Sleep(5 * time.Minute)
		wants("with an older version", "warning "+zone+"cannot be transferred, and the last version serves")
		if got := serialOf(c); got != 5 {
			t.Errorf("with an older version: got serial number %d, want 5", got)
		}
	})
}
