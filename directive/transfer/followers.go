package transfer

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A follower is a server that asks for the next version of a zone: its IXFR query is answered when there is
// one. So thousands of servers, whose addresses the Corefile does not have, learn of a change at once. They
// take no place of queries for other servers, and have a part of the memory of their own.

const (
	// maxFollow bounds the time for which a query waits for the next version.
	maxFollow = time.Minute
	// maxFollowQuery is the size of the largest query that waits. Others are answered at once.
	maxFollowQuery = 1 << 10
	// followerSize is the memory of a query that waits: the Query with its packet, its waiter and timer.
	followerSize = 3 << 10
)

// A followed is the handler that has followers wait. It is above the Transfer, which answers them.
type followed struct {
	transfer *Transfer
	waiting  *waiting // set at the start
}

// ServeDNS returns Wait for an IXFR query that waits for the next version of a zone.
func (f *followed) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Type != wire.TypeIXFR || !q.Streams() {
		return dns.Next
	}
	wait := followTime(q)
	if wait == 0 || f.transfer.ServeDNS(q) != dns.Wait {
		return dns.Next
	}
	q.Timeout = wait + timeout
	return dns.Wait
}

// followTime returns how long the client wants to wait for the next version.
func followTime(q *dns.Query) time.Duration {
	if len(q.Packet()) > maxFollowQuery {
		return 0
	}
	for code, data := range wire.Options(q.Request.Options(q.Packet())) {
		if code == wire.OptionFollow && len(data) == 2 {
			return min(time.Duration(binary.BigEndian.Uint16(data))*time.Second, maxFollow)
		}
	}
	return 0
}

// ReserveDNS implements [dns.Reserver]. As with transfers, a quarter of the places is kept for clients that the
// Corefile names.
func (f *followed) ReserveDNS(q *dns.Query) (release func(), err error) {
	client := q.Peer.Addr()
	return f.waiting.reserve(client, f.transfer.find(wire.Name(q.Name())).names(client))
}

// AwaitDNS calls wake when there is a newer version than the client's, and when its time has passed.
func (f *followed) AwaitDNS(q *dns.Query, wake func()) bool {
	has, ok := clientSerial(q.Packet())
	if !ok || !q.Reserved() {
		return false
	}

	// A version that is made after add wakes the query, and one before is seen here.
	origin := wire.Name(q.Name())
	stop, ok := f.waiting.add(origin, followTime(q), wake)
	if !ok {
		return false
	}
	if v := f.transfer.version(origin); v != nil {
		if serial, _ := v.Serial(); zone.SerialLess(has, serial) {
			stop()
			return false
		}
	}
	return true
}

// Resolve answers the query. The time for which the client wanted to wait is no part of the time that the answer
// takes, which metrics and logs have; a trace has both.
func (f *followed) Resolve(ctx context.Context, q *dns.Query) error {
	if q.Reserved() && q.Trace() == nil {
		q.Start = time.Now()
	}
	return f.transfer.Resolve(ctx, q)
}

// ExplainDNS implements [dns.Explainer].
func (f *followed) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	if v != dns.Wait {
		return nil
	}
	return []dns.Cause{{Text: fmt.Sprintf("the client waits up to %v for the next version", followTime(q))}}
}

// A waiting is the queries of a server that wait for the next versions of zones. Reloads keep it.
type waiting struct {
	memory  *memory.Budget
	drop    func()        // removes the gauge
	clients slots.Counter // of the queries, from ReserveDNS until the answer

	mu      sync.Mutex
	closed  bool // another process replaces this one
	queries map[wire.Name]map[*waiter]struct{}
}

// A waiter is one of them.
type waiter struct {
	timer *time.Timer
	wake  func()
}

func newWaiting(b *memory.Budget, reg *metrics.Registry) *waiting {
	w := &waiting{memory: b, queries: map[wire.Name]map[*waiter]struct{}{}}
	w.drop = reg.TemporaryGauge("seamark_transfer_followers", "Queries that wait for the next version of a zone.",
		func() float64 { return float64(w.clients.Used()) })
	return w
}

// reserve reserves memory for a query of a client. A client may have as many as are free: one client leaves half,
// also of the few for which there is room while other parts of the server have the memory.
func (w *waiting) reserve(client netip.Addr, named bool) (release func(), err error) {
	limit := w.clients.Used() + w.memory.Free(memory.Followers)/followerSize
	if !named {
		limit -= limit / 4
	}
	if !w.clients.TryAdd(client, limit) {
		if w.clients.Used() >= limit {
			return nil, dns.HandlerShare
		}
		return nil, dns.ClientShare
	}
	if w.memory.Reserve(memory.Followers, followerSize) != nil {
		w.clients.Done(client)
		return nil, dns.HandlerShare
	}
	return func() {
		w.memory.Release(memory.Followers, followerSize)
		w.clients.Done(client)
	}, nil
}

// add calls wake once when the zone changes or the time has passed, unless stop is called before. It returns
// false if queries must not wait.
func (w *waiting) add(origin wire.Name, limit time.Duration, wake func()) (stop func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, false
	}

	at := &waiter{wake: wake}
	of := w.queries[origin]
	if of == nil {
		of = map[*waiter]struct{}{}
		w.queries[origin] = of
	}
	of[at] = struct{}{}

	stop = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		at.timer.Stop()
		delete(of, at)
	}
	at.timer = time.AfterFunc(limit, func() { stop(); wake() })
	return stop, true
}

// changed wakes the queries that wait for a version of a zone.
func (w *waiting) changed(origin wire.Name) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake(origin)
}

// release wakes all queries.
func (w *waiting) release(closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = closed
	for origin := range w.queries {
		w.wake(origin)
	}
}

// wake wakes the queries of a zone. The caller holds the lock.
func (w *waiting) wake(origin wire.Name) {
	for at := range w.queries[origin] {
		at.timer.Stop()
		at.wake()
	}
	delete(w.queries, origin)
}

// Yield implements config.Yielder: connections are passed to the other process when no query of theirs waits.
func (w *waiting) Yield() { w.release(true) }

// Resume implements config.Yielder.
func (w *waiting) Resume() { w.release(false) }

// Stop implements config.Stopper.
func (w *waiting) Stop() {
	w.release(true)
	w.drop()
}
