package dns

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// patience is how long a parked query may take before its context ends. Stub
// resolvers ask again after five seconds (resolv.conf(5)).
const patience = 10 * time.Second

// ErrParkingFull is the Err of a query for which there was no room to wait.
var ErrParkingFull = errors.New("too many queries are waiting")

// A ParkingLot is where queries of one plan wait, off their readers: one goroutine
// each, and no more than it has room for.
type ParkingLot struct {
	// Rejected, if there is one, counts the queries for which there was no room.
	Rejected *metrics.Counter

	ctx    context.Context
	cancel context.CancelFunc
	room   chan struct{}
	parked sync.WaitGroup
}

// NewParkingLot makes a lot with room for n queries.
func NewParkingLot(n int) *ParkingLot {
	ctx, cancel := context.WithCancel(context.Background())
	return &ParkingLot{ctx: ctx, cancel: cancel, room: make(chan struct{}, n)}
}

// Parked counts the queries that wait now.
func (l *ParkingLot) Parked() int { return len(l.room) }

// Close waits until ctx ends for those that wait, then cancels the rest and
// waits for them too. Nothing may be parked any more.
func (l *ParkingLot) Close(ctx context.Context) {
	empty := make(chan struct{})
	go func() { l.parked.Wait(); close(empty) }()
	select {
	case <-empty:
	case <-ctx.Done():
	}
	l.cancel()
	<-empty
}

// park takes q over. If there is no room it is left to the caller.
func (l *ParkingLot) park(q *Query) bool {
	select {
	case l.room <- struct{}{}:
	default:
		if l.Rejected != nil {
			l.Rejected.Add(1)
		}
		return false
	}
	l.parked.Add(1)
	q.keep()
	q.late = true
	go func() {
		defer l.parked.Done()
		defer func() { <-l.room }()
		q.finish(l.ctx)
		q.mover.Send(q)
		q.observeParked()
	}()
	return true
}

// observeParked is Observe with nobody above to catch an observer that panics.
func (q *Query) observeParked() {
	mux := q.mux
	defer func() {
		if cause := recover(); cause != nil && mux.recovered != nil {
			q.Err = &Panic{cause, debug.Stack()}
			mux.recovered(q, cause)
		}
	}()
	q.Observe(time.Now())
}

// finish resumes a parked query and seals it.
func (q *Query) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, q.allowed())
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			q.panicked(cause)
		}
		if !q.dropped {
			q.seal()
		}
	}()
	q.resume(ctx, 0)
}

func (q *Query) allowed() time.Duration {
	if q.Timeout > 0 {
		return q.Timeout
	}
	return patience
}

// Requery puts q's question once more to the handlers below the one that calls
// it, for itself and not for a client: what a cache does before an entry ends.
// do gets a copy of q off the reader and asks with its Next; the context ends as
// a parked query's does. Nobody above sees the copy. It says false, and does
// not call do, if too many queries are waiting.
func (q *Query) Requery(do func(ctx context.Context, c *Query)) bool {
	lot := q.mux.lot
	select {
	case lot.room <- struct{}{}:
	default:
		return false
	}
	c := &Query{Request: q.Request}
	c.Reset(append(c.Buffer(len(q.packet))[:0], q.packet...), q.Proto, time.Now())
	c.Options = slices.Clone(q.Options)
	c.instead = slices.Clone(q.instead)
	c.Peer, c.Local, c.Interface, c.mux, c.Timeout = q.Peer, q.Local, q.Interface, q.mux, q.Timeout
	c.enter(q.chain)
	c.at, c.late = q.at, true
	if q.interceptor >= 0 {
		c.at = q.interceptor
	}
	c.floor = c.at + 1
	c.Answer.Reset(nil, c.Question())
	lot.parked.Add(1)
	go func() {
		defer lot.parked.Done()
		defer func() { <-lot.room }()
		ctx, cancel := context.WithTimeout(lot.ctx, c.allowed())
		defer cancel()
		defer func() {
			if cause := recover(); cause != nil {
				c.panicked(cause)
			}
		}()
		do(ctx, c)
	}()
	return true
}

// giveUp answers a query for which there is no room: SERVFAIL, at once. The
// handlers that it passed still see it.
func (q *Query) giveUp() {
	q.abandon()
	q.Fail(wire.ServFail)
	q.Err = ErrParkingFull
	q.up(0, q.at, Done)
}
