package forward

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/test/chaintest"
)

// A fast upstream needs few sockets for any number of queries, and a slow one at most
// maxSockets.
func TestSocketReuse(t *testing.T) {
	release := make(chan struct{})
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		go func() { <-release; send(pack(answerOf(q, "1"))) }()
	})
	r := newHarness(t, "forward . "+up.addr)
	u := r.forward[0].set.current.Load().all[0]
	open := func() int {
		u.mu.Lock()
		defer u.mu.Unlock()
		return len(u.sockets)
	}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() { r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1") })
	}
	chaintest.Eventually(t, "all are on their way", func() bool { return up.queryCount() >= 200 })
	if n := open(); n < 2 || n > maxSockets {
		t.Errorf("200 concurrent queries: got %d sockets, want 2 to %d", n, maxSockets)
	}
	close(release)
	all.Wait()
	up.setBehavior(answerWithAddress("1"))
	_, _, before := up.counts()
	for i := range 200 {
		r.wantAnswer(fmt.Sprintf("m%d.example.", i), mdns.TypeA, "192.0.2.1")
	}
	if _, _, after := up.counts(); after-before > defaultSockets {
		t.Errorf("200 successive queries: got %d new ports, want at most %d", after-before, defaultSockets)
	}
}

// A table assigns an ID to each attempt, and finds the attempt by it until take removes
// it.
func TestTableIDs(t *testing.T) {
	var table attemptTable
	var all []*attempt
	for range maxWaiting {
		a := &attempt{}
		if err := table.add(a); err != nil {
			t.Fatalf("add of attempt %d: %v", len(all)+1, err)
		}
		all = append(all, a)
	}
	if err := table.add(&attempt{}); err != errBusy || table.closeUnused() {
		t.Errorf("add to a full table: got error %v, want %v and no end of the table", err, errBusy)
	}
	for _, a := range all[:10] {
		id := a.id
		if got, used := table.find(id); got != a || !used {
			t.Errorf("find(%d): got another attempt, want the one with the ID", id)
		}
		if !table.take(a) || table.take(a) {
			t.Errorf("take of ID %d: want true once and then false", id)
		}
		if got, used := table.find(id); got != nil || !used {
			t.Errorf("find(%d) after take: got %v, used %v, want nil, used true", id, got, used)
		}
	}
	if n := len(table.expire(clock.Now() - time.Hour)); n != 0 {
		t.Errorf("expire(an hour ago): got %d attempts, want 0", n)
	}
	n := len(table.close(errSpoofed))
	table.close(errClosed)
	if err := table.add(&attempt{}); n != maxWaiting-10 || table.load() != 0 || err != errSpoofed {
		t.Errorf("close: got %d attempts and then error %v, want %d and %v", n, err, maxWaiting-10, errSpoofed)
	}
}

func TestPercentile95(t *testing.T) {
	var l latencyHistogram
	const most = 2 * time.Second
	is := func(least, highest time.Duration) {
		t.Helper()
		if got := l.percentile95(most); got < least || got > highest {
			t.Errorf("the tail is %s, want %s to %s", got, least, highest)
		}
	}
	is(initialRetryDelay, initialRetryDelay)
	for range 100 {
		l.add(time.Millisecond)
	}
	is(minRetryDelay, minRetryDelay)
	for range 4 { // four of a hundred do not count
		l.add(time.Second)
	}
	is(minRetryDelay, minRetryDelay)
	for range 900 { // Older latencies count less and less.
		l.add(100 * time.Millisecond)
	}
	is(100*time.Millisecond, 125*time.Millisecond)
	for range 2000 {
		l.add(time.Hour)
	}
	is(most, most)
	if l.total > 512 {
		t.Errorf("got %d samples, want at most 512", l.total)
	}
	if n := testing.AllocsPerRun(100, func() { l.add(time.Second) }); n > 0 {
		t.Errorf("add: got %v allocations, want 0", n)
	}
}

func TestIPv6Upstream(t *testing.T) {
	c, err := net.ListenPacket("udp", "[::1]:0")
	if err != nil {
		t.Skipf("listening on the IPv6 loopback address, which this test needs: %v", err)
	}
	s := &mdns.Server{PacketConn: c, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) { _ = w.WriteMsg(answerOf(q, "6")) })}
	started, ended := make(chan struct{}), make(chan error, 1)
	s.NotifyStartedFunc = func() { close(started) }
	go func() { ended <- s.ActivateAndServe() }()
	<-started
	defer func() { _ = s.Shutdown(); <-ended }()
	r := newHarness(t, "forward . "+c.LocalAddr().String()+" {\n source_address 127.0.0.1\n}") // of the other family
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.6")
}

// A query does not wait long for a slow upstream if others are fast, and late
// replies do not make the slow upstream look fast.
func TestSlowUpstreamOvertaken(t *testing.T) {
	for _, policy := range []string{random, sequential} {
		r := newHarness(t, "forward . 127.0.0.1:1 127.0.0.1:2 {\n policy "+policy+"\n max_fails 0\n}")
		all := r.forward[0].set.current.Load().all
		slow, fast := all[0], all[1]
		x := &exchange{set: r.forward[0].set, candidates: all}
		for range 100 {
			slow.latency.add(time.Second)
			fast.latency.add(time.Millisecond)
		}
		usual, suspected := slowFactor*minRetryDelay, minRetryDelay
		if policy == sequential {
			usual, suspected = slow.latency95(), slow.latency95()
		}
		if got := x.retryDelay(slow); got != usual {
			t.Errorf("%s: %s, want %s", policy, got, usual)
		}
		for range suspectAfter {
			slow.countOverdue()
		}
		over := new(exchange)
		over.finished.Store(true)
		slow.finish(&attempt{request: new(request), requester: over}, &reply{})
		if got := x.retryDelay(slow); got != suspected {
			t.Errorf("%s, under suspicion: %s, want %s", policy, got, suspected)
		}
		if got := x.retryDelay(fast); got != minRetryDelay {
			t.Errorf("policy %s: got %s, want the fast upstream's answer", policy, got)
		}
	}
}

// A deadlineConn records the last read deadline, and how many there were.
type deadlineConn struct {
	net.Conn
	last      time.Time
	sets      int
	meanwhile func(set func()) // called in place of set; may be nil
}

func (c *deadlineConn) SetReadDeadline(t time.Time) error {
	set := func() {
		c.last = t
		c.sets++
	}
	if c.meanwhile != nil {
		c.meanwhile(set)
		return nil
	}
	set()
	return nil
}

// wait returns the time from now on until the last deadline, and the number of deadlines.
func (c *deadlineConn) wait(now time.Time) (time.Duration, int) {
	return c.last.Sub(now), c.sets
}

// The reader of a socket without an attempt looks for expired ones rarely. The first attempt shortens that, and
// others do not set the time again.
func TestReaderRests(t *testing.T) {
	now := time.Now().Add(time.Hour) // so that the time of wake is earlier
	u := &upstream{set: &upstreamSet{options: upstreamOptions{readTimeout: 2 * time.Second, expire: 10 * time.Second}}}
	var table attemptTable
	c := &deadlineConn{}
	check := func(when string, want time.Duration, wantSets int) {
		t.Helper()
		if got, sets := c.wait(now); got != want || sets != wantSets {
			t.Errorf("%s: got a deadline after %v, and %d in all, want %v, and %d", when, got, sets, want, wantSets)
		}
	}
	add := func() {
		if err := table.add(&attempt{}); err != nil {
			t.Fatal(err)
		}
		table.wake(u, c)
	}

	table.sweepLater(u, c, now)
	check("without an attempt", time.Second, 1)
	add()
	if got, sets := c.wait(time.Now()); got > 250*time.Millisecond || sets != 2 {
		t.Errorf("with the first attempt: got a deadline after %v, and %d in all, want 250ms, and 2", got, sets)
	}
	add()
	if _, sets := c.wait(now); sets != 2 {
		t.Errorf("with the second attempt: got %d deadlines, want 2", sets)
	}
	table.sweepLater(u, c, now)
	check("with attempts", 250*time.Millisecond, 4)
}

// An attempt that is added while the reader begins to rest makes it look soon, whenever that is.
func TestReaderRestsMeanwhile(t *testing.T) {
	u := &upstream{set: &upstreamSet{options: upstreamOptions{readTimeout: 2 * time.Second, expire: time.Hour}}}
	for name, after := range map[string]bool{"before the deadline is set": false, "after it": true} {
		var table attemptTable
		c := &deadlineConn{}
		c.meanwhile = func(set func()) {
			c.meanwhile = nil
			if after {
				set()
			}
			if err := table.add(&attempt{}); err != nil {
				t.Fatal(err)
			}
			table.wake(u, c)
			if !after {
				set()
			}
		}
		table.sweepLater(u, c, time.Now())
		if got, _ := c.wait(time.Now()); got > u.sweepInterval() {
			t.Errorf("an attempt %s: got a deadline after %v, want at most %v", name, got, u.sweepInterval())
		}
	}
}
