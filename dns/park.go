package dns

import (
	"context"
	"errors"
	"hash/maphash"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// defaultTimeout bounds the time that a parked query may take. Stub resolvers repeat
// a query after five seconds (resolv.conf(5)).
const defaultTimeout = 10 * time.Second

// ErrParkingFull is the Err of a query that could not be parked.
var ErrParkingFull = errors.New("too many queries are waiting")

// A ParkingLot holds the queries of one plan that wait. Each has a goroutine, and
// their number is bounded.
//
// Clients and handlers get fair shares of the places. A query is admitted if its
// client has at most twice as many queries in the lot as there are free places, and
// the handler that waits at most as many. So one handler, such as a forward whose
// upstream does not reply, can occupy half of the lot, one client two thirds, and
// there are always free places for others.
type ParkingLot struct {
	// Rejected counts the queries that could not be parked. It may be nil.
	Rejected *metrics.Counter

	ctx     context.Context
	cancel  context.CancelFunc
	room    int64
	parked  atomic.Int64
	clients [1024]atomic.Int64 // parked queries by hash of the client; different clients may share a counter
	seed    maphash.Seed
	running sync.WaitGroup
}

// NewParkingLot returns a lot for n queries.
func NewParkingLot(n int) *ParkingLot {
	ctx, cancel := context.WithCancel(context.Background())
	return &ParkingLot{ctx: ctx, cancel: cancel, room: int64(n), seed: maphash.MakeSeed()}
}

// Parked returns the number of queries that wait.
func (l *ParkingLot) Parked() int { return int(l.parked.Load()) }

// Close waits for the parked queries until ctx ends, then cancels the others and
// waits for them. No more queries may be parked.
func (l *ParkingLot) Close(ctx context.Context) {
	empty := make(chan struct{})
	go func() { l.running.Wait(); close(empty) }()
	select {
	case <-empty:
	case <-ctx.Done():
	}
	l.cancel()
	<-empty
}

// A place is a parked query's place in a lot.
type place struct {
	lot             *ParkingLot
	client, handler *atomic.Int64 // counters of parked queries
}

// reserve takes a place for a query of q's client that waits for the handler at the
// current step. It returns false if their share of the lot is used up.
func (l *ParkingLot) reserve(q *Query) (place, bool) {
	p := place{l, l.client(q.Peer.Addr()), q.chain.steps[q.at].parked}
	free := l.room - l.parked.Add(1) + 1
	client, handler := p.client.Add(1), p.handler.Add(1)
	if free < 1 || client > 2*free || handler > free {
		p.free()
		return p, false
	}
	return p, true
}

// client returns the counter of a client, which is the /64 network of an IPv6 address.
func (l *ParkingLot) client(a netip.Addr) *atomic.Int64 {
	key := a.As16()
	n := len(key)
	if a.Is6() {
		n = 8
	}
	return &l.clients[maphash.Bytes(l.seed, key[:n])%uint64(len(l.clients))]
}

func (p place) free() {
	p.lot.parked.Add(-1)
	p.client.Add(-1)
	p.handler.Add(-1)
}

// start calls f on a goroutine that has a place, and then frees the place.
func (p place) start(f func()) {
	p.lot.running.Go(func() {
		defer p.free()
		f()
	})
}

// park takes q from its reader. It returns false, and leaves q to the reader, if the
// client or the handler has used up its share of the lot.
func (l *ParkingLot) park(q *Query) bool {
	place, ok := l.reserve(q)
	if !ok {
		if l.Rejected != nil {
			l.Rejected.Add(1)
		}
		return false
	}
	q.keepAnswer()
	q.detached = true
	place.start(func() {
		q.finish(l.ctx)
		q.Sender.Send(q)
		q.observeParked()
	})
	return true
}

// keepAnswer copies the answer out of memory that belongs to the transport. Usually
// it holds only the question, so there is also room for an ordinary answer.
func (q *Query) keepAnswer() {
	body := q.Answer.Buf
	if cap(q.own) < len(body)+wire.MinUDPSize {
		q.own = make([]byte, 0, len(body)+wire.MinUDPSize)
	}
	q.Answer.Buf = append(q.own[:0], body...)
}

// finish resumes a parked query and seals its reply.
func (q *Query) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout())
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			q.failPanicked(cause)
		}
		if !q.dropped {
			q.seal()
		}
	}()
	q.resume(ctx, 0)
}

func (q *Query) timeout() time.Duration {
	if q.Timeout > 0 {
		return q.Timeout
	}
	return defaultTimeout
}

// observeParked calls Observe and recovers from a panic of an observer.
func (q *Query) observeParked() {
	mux := q.mux
	defer func() {
		if cause := recover(); cause != nil && mux.onPanic != nil {
			q.Err = &Panic{cause, debug.Stack()}
			mux.onPanic(q, cause)
		}
	}()
	q.Observe(time.Now())
}

// failUnparked makes the answer to a query that cannot be parked SERVFAIL, and calls
// the finishers of the handlers that it has passed.
func (q *Query) failUnparked() {
	q.abandonSubQuery()
	q.Fail(wire.ServFail)
	q.Err = ErrParkingFull
	q.complete(0, q.at, Done)
}

// Requery asks the handlers below the one that calls it again, in the background: a
// cache refreshes an entry in this way before the entry expires. do is called with a
// copy of q on another goroutine, and calls the copy's Next. Handlers above do not
// see the copy. Its context ends as that of a parked query does. Requery returns
// false and does not call do if too many queries are waiting.
func (q *Query) Requery(do func(ctx context.Context, c *Query)) bool {
	lot := q.mux.lot
	place, ok := lot.reserve(q)
	if !ok {
		return false
	}
	c := &Query{Request: q.Request}
	c.Reset(append(c.Buffer(len(q.packet))[:0], q.packet...), q.Proto, time.Now())
	c.Options = slices.Clone(q.Options)
	c.newQuestion = slices.Clone(q.newQuestion)
	c.Peer, c.Local, c.Interface, c.mux, c.Timeout = q.Peer, q.Local, q.Interface, q.mux, q.Timeout
	c.enter(q.chain)
	c.at, c.detached = q.at, true
	if q.interceptor >= 0 {
		c.at = q.interceptor
	}
	c.floor = c.at + 1
	c.Answer.Reset(nil, c.Question())
	place.start(func() {
		ctx, cancel := context.WithTimeout(lot.ctx, c.timeout())
		defer cancel()
		defer func() {
			if cause := recover(); cause != nil {
				c.failPanicked(cause)
			}
		}()
		do(ctx, c)
	})
	return true
}
