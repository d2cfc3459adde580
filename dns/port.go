package dns

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seamark/seamark/wire"
)

// A Port is one listening address and the Mux that serves it. A reload swaps the mux.
//
// Each reader registers a lock, which it holds while it serves packets. After Swap,
// WaitReaders takes each lock once; then no reader uses the old mux any more, and
// only parked queries do.
type Port struct {
	mux        atomic.Pointer[Mux]
	noParking  atomic.Bool
	overloaded atomic.Bool
	mu         sync.Mutex
	readers    map[sync.Locker]struct{}
}

// An Outcome determines how a reader must continue with a query that it has served.
type Outcome uint8

const (
	Answered Outcome = iota // send Reply, then call Observe
	Dropped                 // send nothing; call Observe
	Ignored                 // send nothing; the packet was not a query
	Parked                  // do not touch the query: it has another owner
)

// AddReader registers the lock that a reader holds while it serves.
func (p *Port) AddReader(l sync.Locker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readers == nil {
		p.readers = map[sync.Locker]struct{}{}
	}
	p.readers[l] = struct{}{}
}

// RemoveReader removes a reader that has ended.
func (p *Port) RemoveReader(l sync.Locker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.readers, l)
}

// Swap installs mux, and returns the mux that it replaces, whose replies are repeated no
// longer.
func (p *Port) Swap(mux *Mux) *Mux {
	old := p.mux.Swap(mux)
	old.stopRepeating()
	return old
}

// WaitReaders blocks until no reader uses a mux that was swapped out before.
func (p *Port) WaitReaders() {
	p.mu.Lock()
	readers := slices.Collect(maps.Keys(p.readers))
	p.mu.Unlock()
	for _, l := range readers {
		waitFor(l)
	}
}

// waitFor blocks until the holder of l, if there is one, has released it.
func waitFor(l sync.Locker) {
	l.Lock()
	defer l.Unlock()
}

// StopParking makes the Port answer queries that would have to wait with SERVFAIL,
// since the address is about to be closed.
func (p *Port) StopParking() { p.noParking.Store(true) }

// SetOverloaded sets whether more UDP queries arrive than can be answered. Fewer may wait
// then, and a UDP query that would have to wait beyond that gets no reply.
func (p *Port) SetOverloaded(is bool) { p.overloaded.Store(is) }

// Serve answers the packet of q, and builds the reply in lent; or it parks q.
func (p *Port) Serve(q *Query, lent []byte) Outcome { return p.serve(q, lent, p.mux.Load()) }

func (p *Port) serve(q *Query, lent []byte, mux *Mux) Outcome {
	q.mux = mux
	fault := q.Parse(q.packet)
	if fault == wire.Unreadable {
		q.mux = nil
		return Ignored
	}
	q.Answer.Reset(lent, q.Question())

	chain := q.findChain(fault)
	if chain == nil {
		q.seal()
		return Answered
	}
	if chain.tracer != nil {
		chain = q.follow(chain)
	}
	q.enter(chain)

	if q.walk(0) == Wait && p.park(q) {
		return Parked
	}
	if q.dropped {
		return Dropped
	}
	q.seal()
	return Answered
}

// findChain returns the chain that q enters. If there is none, q has its response code.
func (q *Query) findChain(fault wire.Fault) *Chain {
	answered := q.mux.opcodes>>q.Opcode()&1 == 1
	if fault == wire.Malformed && q.Opcode() == wire.OpcodeUpdate && !answered {
		fault = wire.UnknownOpcode // a server without updates does not look into them
	}
	message := fault == wire.UnknownOpcode && answered
	if fault != wire.NoFault && !message {
		q.RCode = faultCode(fault)
		return nil
	}

	if options := q.Request.Options(q.packet); len(options) > 0 {
		q.optionBuf = appendForwardable(q.optionBuf[:0], options)
		q.Options = q.optionBuf
	}

	chain := q.mux.find(q)
	switch {
	case message && chain != nil && chain.opcodes>>q.Opcode()&1 == 0:
		q.RCode = wire.NotImp
		return nil
	case message && chain != nil:
		return chain.messages
	case chain == nil, chain.empty(), !chain.admits(q):
		q.chain, q.RCode = q.mux.Unserved, wire.Refused
		return nil
	}
	return chain
}

// faultCode returns the response code for a request that no chain sees.
func faultCode(fault wire.Fault) wire.RCode {
	switch fault {
	case wire.UnknownOpcode:
		return wire.NotImp
	case wire.UnknownVersion:
		return wire.BadVers
	}
	return wire.FormErr
}

// park parks q, and reports whether there was a place for it. Otherwise q is answered with
// SERVFAIL.
func (p *Port) park(q *Query) bool {
	err, overloaded := error(LotFull), false
	if !p.noParking.Load() {
		overloaded = p.overloaded.Load()
		err = q.mux.lot.park(q, overloaded)
	}
	if err == nil {
		return true
	}

	q.failUnparked(err, 0)
	if overloaded && q.Proto == UDP && q.RCode == wire.ServFail {
		q.dropped = true // to send it takes as much time as another client's answer
	}
	return false
}

// Recover replaces the reply to q by SERVFAIL. A reader calls it if Serve panicked with
// cause.
func (p *Port) Recover(q *Query, lent []byte, cause any) Outcome {
	q.Answer.Reset(lent, q.Question())
	q.failPanicked(cause)
	q.seal()
	return Answered
}

// A Panic is the Err of a query whose handler panicked.
type Panic struct {
	Cause any
	Stack []byte // as debug.Stack returns it
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Cause) }

// failPanicked makes the answer SERVFAIL and calls the finishers of the handlers that
// the query has passed.
func (q *Query) failPanicked(cause any) {
	q.dropped, q.answeredBy = false, -1
	q.Fail(wire.ServFail)
	q.unwind()
	q.Err = &Panic{cause, debug.Stack()}
	if q.mux.onPanic != nil {
		q.mux.onPanic(q, cause)
	}
}
