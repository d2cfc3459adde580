package dns

import (
	"bytes"
	"context"
	"hash/maphash"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/wire"
)

// defaultTimeout bounds the time that a parked query may take. Stub resolvers repeat
// a query after five seconds (resolv.conf(5)).
const defaultTimeout = 10 * time.Second

// A ParkingError is the Err of a query that could not be parked.
type ParkingError uint8

const (
	LotFull      ParkingError = iota // all places are taken
	ClientShare                      // the client has used up its share
	HandlerShare                     // the queries that wait for the handler have used up its share
	NumParkingErrors
)

func (e ParkingError) Error() string {
	return [...]string{"too many queries are waiting", "too many queries of the client are waiting",
		"too many queries are waiting for the directive"}[e]
}

// Label returns e as the value of a metric's label.
func (e ParkingError) Label() string { return [...]string{"full", "client", "handler"}[e] }

// A ParkingLot holds the queries of one plan that wait. Their number is bounded.
//
// A query that waits for an Awaiter has no goroutine and occupies one place, or none for a
// Reserver. For another Resolver it occupies stackPlaces. A large packet occupies more.
//
// Clients and handlers get fair shares of the places: add has the rules. One handler, such
// as a forward whose upstream does not reply, can occupy half of the lot, and one client two
// thirds, or two fifths at one handler. So there are always free places for other handlers,
// and at each handler for clients with few queries.
//
// While the server is overloaded, one handler can occupy a sixteenth of the lot only: a
// query that waits needs several times as much CPU time as an answer from the server's own
// data, and takes it from these answers. The reply to a query that is not admitted needs
// that time, too, so over UDP there is none.
type ParkingLot struct {
	// Rejected counts the queries that could not be parked, by ParkingError.
	Rejected [NumParkingErrors]*metrics.Counter
	// Room, if not nil, returns how many of a number of places there are at present: fewer while other things
	// need the memory. It is set before the first query.
	Room func(places int64) int64

	ctx     context.Context
	cancel  context.CancelFunc
	room    int64
	used    atomic.Int64
	parked  atomic.Int64       // queries
	clients [8192]atomic.Int32 // places by hash of the client; different clients may share a counter
	seed    maphash.Seed
	running sync.WaitGroup
	timers  clock.Timers // of queries for Awaiters
	resumed resumed
}

const (
	// stackPlaces is the number of places for a query with a goroutine, whose stack
	// needs more memory than everything else.
	stackPlaces = 8
	// One handler can occupy 1/overloadPart of the lot under overload.
	overloadPart = 16
	// packetPlace is the number of bytes of a packet for each place, except the first.
	packetPlace = 1 << 10
	// answerPlace is the number of bytes of a large answer for each place: what a stack needs in eight.
	answerPlace = 3 << 10
	// usualReply is more than the size of most answers of upstreams.
	usualReply = 256
)

// NewParkingLot returns a lot for n queries with goroutines.
func NewParkingLot(n int) *ParkingLot {
	ctx, cancel := context.WithCancel(context.Background())
	return &ParkingLot{
		ctx: ctx, cancel: cancel, room: stackPlaces * int64(n), seed: maphash.MakeSeed(),
		resumed: resumed{free: maxResumed()},
	}
}

// Parked returns the number of queries that wait.
func (l *ParkingLot) Parked() int { return int(l.parked.Load()) }

// Places returns the number of places that they occupy: eight for a query with a goroutine.
func (l *ParkingLot) Places() int64 { return l.used.Load() }

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
	l.timers.ExpireAll()
	<-empty
}

// countRejected counts a query that could not be parked. err may be nil.
func (l *ParkingLot) countRejected(err error) {
	if why, ok := err.(ParkingError); ok && l.Rejected[why] != nil {
		l.Rejected[why].Add(1)
	}
}

// client returns the counter of a client, which is the /64 network of an IPv6 address.
func (l *ParkingLot) client(a netip.Addr) *atomic.Int32 {
	key := a.As16()
	n := len(key)
	if a.Is6() {
		n = 8
	}
	return &l.clients[maphash.Bytes(l.seed, key[:n])%uint64(len(l.clients))]
}

// A place holds a parked query in a lot, and the number of places that it occupies.
// It belongs to the goroutine that owns the query.
type place struct {
	lot      *ParkingLot
	q        *Query
	finished func(q *Query) // called at the end
	size     int64          // in places
	stack    bool           // size includes a stack
	release  func()         // of a Reserver, while it bounds the query in place of the lot; else nil
	turn     bool           // counts in resumed
	client   *atomic.Int32  // counter of places
	handler  *atomic.Int64  // counter of places
	deadline time.Duration
	timer    clock.Timer // calls wake at the deadline; not set if the query has a goroutine
	state    atomic.Uint32
}

// States of a place.
const (
	starting uint32 = iota // a goroutine calls AwaitDNS
	awaiting               // no goroutine owns the query; the next call of wake starts one
	awake                  // calls of wake have no effect
)

// reserve takes a place for q, which waits for the handler at its step. finished is
// called once with the complete answer, on another goroutine.
func (l *ParkingLot) reserve(q *Query, overloaded bool, finished func(q *Query)) (*place, error) {
	s := &q.chain.steps[q.at]
	p := &place{lot: l, q: q, finished: finished, client: l.client(q.Peer.Addr()), handler: s.parked}

	var err error
	if s.reserver != nil {
		p.release, err = s.reserver.ReserveDNS(q)
	} else {
		p.stack = s.awaiter == nil
		err = p.add(p.wanted(), overloaded)
	}
	if err != nil {
		return nil, err
	}

	l.parked.Add(1)
	q.place = p
	return p, nil
}

// wanted returns the size for the query and its stack, if it has one.
func (p *place) wanted() int64 {
	size := int64(1 + len(p.q.packet)/packetPlace)
	if p.stack {
		size += stackPlaces - 1
	}
	return size
}

// add makes the place larger, if the lot, the handler and the client may have that many
// more:
//
//	lot:     size <= free
//	handler: its places, with these, <= free, and under overload <= room/overloadPart
//	client:  its places, with these, <= 2 * free, and without these <= 2 * what the
//	         handler may still take
//
// where free are the places before. The counters are added to first, so that two queries at
// the same time cannot both take the last place.
func (p *place) add(size int64, overloaded bool) error {
	room := p.lot.room
	if p.lot.Room != nil {
		room = p.lot.Room(room)
	}
	free := room - (p.lot.used.Add(size) - size)
	client, handler := int64(p.client.Add(int32(size))), p.handler.Add(size)
	p.size += size

	handlerLimit := free
	if overloaded {
		handlerLimit = min(free, room/overloadPart)
	}

	lotAllows := size <= free
	handlerAllows := handler <= handlerLimit
	clientAllows := client <= 2*free && client-size <= 2*(handlerLimit-handler)

	var err ParkingError
	switch {
	case !lotAllows:
		err = LotFull
	case !handlerAllows:
		err = HandlerShare
	case !clientAllows:
		err = ClientShare
	default:
		return nil
	}
	p.sub(size)
	return err
}

func (p *place) sub(size int64) {
	p.size -= size
	p.lot.used.Add(-size)
	p.client.Add(int32(-size))
	p.handler.Add(-size)
}

// addStack is called before the goroutine of a parked query blocks. p may be nil.
func (p *place) addStack() error {
	if p == nil || p.stack {
		return nil
	}
	p.stack = true // for wanted
	size := int64(stackPlaces - 1)
	if p.release != nil {
		size = p.wanted()
	}

	if err := p.add(size, false); err != nil {
		p.stack = false
		p.lot.countRejected(err)
		return err
	}
	p.lot.resumed.leave(p)
	p.endReserved()
	return nil
}

// endReserved ends the part of a Reserver.
func (p *place) endReserved() {
	if p.release != nil {
		p.release()
		p.release = nil
	}
}

// Block is called by Resolve before it blocks, unless it calls a function of this package for that. An error is for
// Resolve to return.
func (q *Query) Block() error { return q.top().place.addStack() }

// top returns the query that the client has sent, of which q may be a sub-query.
func (q *Query) top() *Query {
	for q.parent != nil {
		q = q.parent
	}
	return q
}

// ReserveAnswer takes places for an answer of so many bytes that Resolve is about to copy into a parked query, until
// the answer has been delivered. An error is for Resolve to return. Sub-queries belong to the parked query.
func (q *Query) ReserveAnswer(bytes int) error {
	if q = q.top(); q.place == nil {
		return nil
	}
	err := q.place.add(int64(bytes/answerPlace), false)
	q.place.lot.countRejected(err)
	return err
}

// Reserved reports whether a Reserver bounds the query.
func (q *Query) Reserved() bool { return q.place != nil && q.place.release != nil }

// start continues the query on a goroutine.
func (p *place) start() {
	p.deadline = clock.Now() + p.q.timeout()
	p.lot.running.Add(1)
	go p.run()
}

// run resumes the query, unless it awaits an event.
func (p *place) run() {
	waits := false
	if p.q.recovered(func() { waits = p.await() }) {
		p.end()
	} else if !waits {
		p.resolve()
	}
}

// await calls AwaitDNS if the handler is an Awaiter. It reports whether the query has
// to wait for wake.
func (p *place) await() bool {
	h := p.q.chain.steps[p.q.at].awaiter
	if h == nil {
		return false
	}

	p.timer.Expired = p.wake
	p.lot.timers.Set(&p.timer, p.deadline)
	if !h.AwaitDNS(p.q, p.timer.Expired) || p.lot.ctx.Err() != nil { // Close may have missed p
		p.state.Store(awake)
		return false
	}

	if p.q.Answer.Empty() {
		p.q.Answer.Buf = nil // while the query waits: resolve makes it again
	}
	return p.state.CompareAndSwap(starting, awaiting)
}

// wake resumes the query.
func (p *place) wake() {
	if p.state.Swap(awake) == awaiting {
		p.lot.resumed.start(p)
	}
}

// resolve calls Resolve and the finishers, and delivers the answer.
func (p *place) resolve() {
	ctx, cancel := context.WithTimeout(p.lot.ctx, p.deadline-clock.Now())
	defer cancel()

	q := p.q
	if q.Answer.Buf == nil {
		q.Answer.Reset(make([]byte, 0, usualReply), q.Question())
	}

	q.recovered(func() { q.resolve(ctx, q.floor) })
	p.lot.resumed.leave(p) // the client may be slow to take the answer
	p.end()
}

// recovered calls f. It reports whether f panicked; the answer is SERVFAIL then.
func (q *Query) recovered(f func()) (panicked bool) {
	defer func() {
		if cause := recover(); cause != nil {
			q.failPanicked(cause)
			panicked = true
		}
	}()
	f()
	return false
}

// end delivers the answer and frees the place.
func (p *place) end() {
	defer p.free()
	p.q.recovered(func() { p.finished(p.q) })
}

func (p *place) free() {
	if p.timer.Expired != nil {
		p.state.Store(awake)
		p.lot.timers.Stop(&p.timer)
	}
	p.sub(p.size)
	p.endReserved()
	p.lot.parked.Add(-1)
	p.lot.running.Done()
}

// park takes q from its reader. On an error it leaves q to the reader.
func (l *ParkingLot) park(q *Query, overloaded bool) error {
	p, err := l.reserve(q, overloaded, (*Query).reply)
	if err != nil {
		l.countRejected(err)
		return err
	}

	q.compact()
	q.detached = true
	p.start()
	return nil
}

// compact moves q's data from the transport's memory to memory of its own, no more than
// a query that waits needs.
func (q *Query) compact() {
	q.packet = bytes.Clone(q.packet)
	q.Request.Compact()
	q.Options, q.optionBuf = append([]byte(nil), q.Options...), nil
	q.replyOpt = append([]byte(nil), q.replyOpt...)
	q.Answer.Buf = bytes.Clone(q.Answer.Buf)
	if q.chain.steps[q.at].awaiter != nil {
		q.sub = nil // it is finished: Awaiters make sub-queries only in Resolve
	}
}

// reply sends and observes the answer to a parked query.
func (q *Query) reply() {
	if !q.dropped {
		q.seal()
	}
	q.Sender.Send(q)
	q.observeParked()
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
// the finishers of the handlers that it has passed, as far as floor.
func (q *Query) failUnparked(err error, floor int) {
	q.abandonSubQuery()
	q.Fail(wire.ServFail)
	q.Err = err
	q.answeredBy, q.dropped, q.completing = q.at, false, false

	// An Interceptor may have an answer that is better than none, for which it waits for a newer one.
	if s := &q.chain.steps[q.at]; s.interceptor != nil && s.finisher != nil {
		s.finisher.FinishDNS(q)
	}
	q.finishAll(floor)
}
