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

// defaultTimeout bounds the time that a parked query may take. Stub resolvers repeat
// a query after five seconds (resolv.conf(5)).
const defaultTimeout = 10 * time.Second

// ErrParkingFull is the Err of a query that could not be parked.
var ErrParkingFull = errors.New("too many queries are waiting")

// A ParkingLot holds the queries of one plan that wait. Each has a goroutine, and
// their number is bounded.
type ParkingLot struct {
	// Rejected counts the queries that could not be parked. It may be nil.
	Rejected *metrics.Counter

	ctx    context.Context
	cancel context.CancelFunc
	places chan struct{} // holds an element for each parked query
	parked sync.WaitGroup
}

// NewParkingLot returns a lot for n queries.
func NewParkingLot(n int) *ParkingLot {
	ctx, cancel := context.WithCancel(context.Background())
	return &ParkingLot{ctx: ctx, cancel: cancel, places: make(chan struct{}, n)}
}

// Parked returns the number of queries that wait.
func (l *ParkingLot) Parked() int { return len(l.places) }

// Close waits for the parked queries until ctx ends, then cancels the others and
// waits for them. No more queries may be parked.
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

// reserve takes a place in the lot. It returns false if the lot is full.
func (l *ParkingLot) reserve() bool {
	select {
	case l.places <- struct{}{}:
		return true
	default:
		return false
	}
}

// start calls f on a goroutine that has a place, and then frees the place.
func (l *ParkingLot) start(f func()) {
	l.parked.Add(1)
	go func() {
		defer l.parked.Done()
		defer func() { <-l.places }()
		f()
	}()
}

// park takes q from its reader. It returns false, and leaves q to the reader, if the
// lot is full.
func (l *ParkingLot) park(q *Query) bool {
	if !l.reserve() {
		if l.Rejected != nil {
			l.Rejected.Add(1)
		}
		return false
	}
	q.keepAnswer()
	q.late = true
	l.start(func() {
		q.finish(l.ctx)
		q.sender.Send(q)
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

// finish resumes a parked query and seals it.
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
	if !lot.reserve() {
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
	lot.start(func() {
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
