package forward

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// A fast upstream needs few sockets however many ask, and a slow one no more
// than it may have.
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
	eventually(t, "all are on their way", func() bool { return up.queryCount() >= 200 })
	if n := open(); n < 2 || n > maxSockets {
		t.Errorf("%d sockets for 200 questions", n)
	}
	close(release)
	all.Wait()
	up.setBehavior(answerWithAddress("1"))
	_, _, before := up.counts()
	for i := range 200 {
		r.wantAnswer(fmt.Sprintf("m%d.example.", i), mdns.TypeA, "192.0.2.1")
	}
	if _, _, after := up.counts(); after-before > defaultSockets {
		t.Errorf("%d new ports for 200 questions, one after the other", after-before)
	}
}

// A table finds what was put in, by an id of its own each, until it is taken.
func TestTableIDs(t *testing.T) {
	var table table
	var all []*attempt
	for range maxWaiting {
		a := &attempt{packet: make([]byte, 12)}
		if !table.add(a) {
			t.Fatal("no room")
		}
		all = append(all, a)
	}
	if table.add(&attempt{packet: make([]byte, 12)}) {
		t.Error("there is room for more than there is")
	}
	for _, a := range all[:10] {
		id := uint16(a.packet[0])<<8 | uint16(a.packet[1])
		if got, used := table.find(id); got != a || !used {
			t.Error("another attempt has its id")
		}
		if !table.take(a) || table.take(a) {
			t.Error("it can be taken once")
		}
		if got, used := table.find(id); got != nil || !used {
			t.Error("it is still there, or the id is forgotten")
		}
	}
	if n := len(table.expire(time.Now().Add(-time.Hour))); n != 0 {
		t.Errorf("%d are too old", n)
	}
	if n := len(table.close()); n != maxWaiting-10 || table.load() != 0 || table.add(&attempt{packet: make([]byte, 12)}) {
		t.Errorf("%d were left", n)
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
	for range 900 { // what is old counts less and less
		l.add(100 * time.Millisecond)
	}
	is(100*time.Millisecond, 125*time.Millisecond)
	for range 2000 {
		l.add(time.Hour)
	}
	is(most, most)
	if l.total > 512 {
		t.Errorf("%d are remembered", l.total)
	}
	if n := testing.AllocsPerRun(100, func() { l.add(time.Second) }); n > 0 {
		t.Errorf("%v allocations", n)
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

// A question is not left to a slow upstream for long where others are fast, and
// answers that come when others have answered do not make it look better.
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
		over := new(atomic.Bool)
		over.Store(true)
		slow.finish(&attempt{request: new(request), finished: over, outcomes: make(chan *outcome, 1)}, &reply{})
		if got := x.retryDelay(slow); got != suspected {
			t.Errorf("%s, under suspicion: %s, want %s", policy, got, suspected)
		}
		if got := x.retryDelay(fast); got != minRetryDelay {
			t.Errorf("%s, the fast one: %s", policy, got)
		}
	}
}
