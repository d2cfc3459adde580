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

// A Mux finds the chain for a query on one address: that of the longest zone
// which the name is in; among several for one zone, the first whose condition
// holds. It is immutable while it serves.
type Mux struct {
	// Unserved, if there is one, has the queries that no zone holds: they are
	// refused, and its observers see them.
	Unserved *Chain

	zones     map[wire.Name][]*Chain
	root      []*Chain // of zones: every name comes here in the end
	most      int      // labels of the longest zone
	lot       *ParkingLot
	recovered func(q *Query, cause any)
}

// NewMux makes an empty mux. Queries that must wait are parked in lot.
// recovered is told of a handler that panicked; its client gets SERVFAIL.
func NewMux(lot *ParkingLot, recovered func(q *Query, cause any)) *Mux {
	return &Mux{zones: map[wire.Name][]*Chain{}, lot: lot, recovered: recovered}
}

// Route gives a zone's queries to chain. A zone can be given again as long as
// those before have a condition.
func (m *Mux) Route(zone wire.Name, chain *Chain) error {
	for _, c := range m.zones[zone] {
		if c.Match == nil {
			return fmt.Errorf("zone %s is served twice", zone)
		}
	}
	m.zones[zone] = append(m.zones[zone], chain)
	m.most = max(m.most, zone.Labels())
	m.root = m.zones[wire.Root]
	return nil
}

// find returns nil if no zone holds the name. The parent of a zone answers for
// its DS records (RFC 4035 §3.1.4.1), if we serve it. A query for which no
// condition of a zone holds is the parent's, too.
func (m *Mux) find(q *Query) *Chain {
	name, labels := q.Name(), q.Labels()
	var child *Chain
	for i := max(0, labels-m.most); i <= labels; i++ {
		chains := m.root
		if i < labels {
			chains = m.zones[wire.Name(name[q.LabelOffset(i):])]
		}
		for _, chain := range chains {
			if chain.Match != nil && !chain.Match(q) {
				continue
			}
			if q.Type == wire.TypeDS && i == 0 {
				child = chain
				break
			}
			return chain
		}
	}
	return child
}

// An Outcome tells a reader what became of a query.
type Outcome uint8

const (
	Answered Outcome = iota // Reply is ready; Observe is still to be called
	Ignored                 // nothing to send, nothing to observe
	Dropped                 // nothing to send; Observe is still to be called
	Parked                  // the query is someone else's now: do not touch it
)

// A Port is one listening address: the Mux that it serves now. The mux is
// exchanged whole by a reload.
type Port struct {
	mux   atomic.Pointer[Mux]
	ended atomic.Bool
	mu    sync.Mutex
	turns map[sync.Locker]struct{}
}

// A Turn is held by a reader while it answers a batch; one that has a
// metrics.Shard holds that. Taking and releasing every turn once is the grace
// period after a Swap: whoever then still uses the old mux is parked.
type Turn struct{ sync.Mutex }

// Join adds a connection.
func (p *Port) Join() *Turn {
	t := new(Turn)
	p.AddReader(t)
	return t
}

// AddReader adds a reader that has a turn of its own.
func (p *Port) AddReader(turn sync.Locker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turns == nil {
		p.turns = map[sync.Locker]struct{}{}
	}
	p.turns[turn] = struct{}{}
}

// RemoveReader takes a reader out.
func (p *Port) RemoveReader(t sync.Locker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.turns, t)
}

// WaitReaders returns when no reader is inside a mux that was swapped out before.
func (p *Port) WaitReaders() {
	p.mu.Lock()
	turns := slices.Collect(maps.Keys(p.turns))
	p.mu.Unlock()
	for _, t := range turns {
		wait(t)
	}
}

// wait returns once whoever has the turn now has ended it.
func wait(turn sync.Locker) {
	turn.Lock()
	defer turn.Unlock()
}

// Serve answers the packet that q has received, with the reply built in lent
// memory, or parks q.
func (p *Port) Serve(q *Query, lent []byte) (outcome Outcome) {
	q.mux = p.mux.Load()
	fault := q.Parse(q.packet)
	if fault == wire.Unreadable {
		q.mux = nil
		return Ignored
	}
	q.Answer.Reset(lent, q.Question())
	if code, ok := refusal(q, fault); ok {
		q.RCode = code
		q.seal()
		return Answered
	}
	q.Options = passedOn(q.Request.Options(q.packet))
	chain := q.mux.find(q)
	if chain == nil || chain.empty() || q.Class != wire.ClassIN && !chain.anyClass {
		q.chain, q.RCode = q.mux.Unserved, wire.Refused
		q.seal()
		return Answered
	}
	q.enter(chain)
	if q.walk(0) == Wait {
		if !p.ended.Load() && q.mux.lot.park(q) {
			return Parked
		}
		q.giveUp()
	}
	if q.dropped {
		return Dropped
	}
	q.seal()
	return Answered
}

// refusal is the code for what never gets to a chain.
func refusal(q *Query, fault wire.Fault) (wire.RCode, bool) {
	switch {
	case fault == wire.Malformed:
		return wire.FormErr, true
	case fault == wire.UnknownOpcode:
		return wire.NotImp, true
	case fault == wire.UnknownVersion:
		return wire.BadVers, true
	}
	return 0, false
}

// Recover is called by a reader whose Serve panicked with cause. The query is
// answered with SERVFAIL.
func (p *Port) Recover(q *Query, lent []byte, cause any) Outcome {
	q.Answer.Reset(lent, q.Question())
	q.panicked(cause)
	q.seal()
	return Answered
}

// A Panic is the Err of a query whose handler panicked.
type Panic struct {
	Cause any
	Stack []byte // of the goroutine, as debug.Stack gives it
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Cause) }

// panicked makes the answer SERVFAIL, and lets the handlers that the query
// passed finish it.
func (q *Query) panicked(cause any) {
	q.dropped, q.by = false, -1
	q.Fail(wire.ServFail)
	q.unwind()
	q.Err = &Panic{cause, debug.Stack()}
	if q.mux.recovered != nil {
		q.mux.recovered(q, cause)
	}
}

// StopParking says that the address is about to be closed: queries that would have to
// wait are SERVFAIL from now on.
func (p *Port) StopParking() { p.ended.Store(true) }

// Swap makes mux the one that serves from now on and returns the one before.
func (p *Port) Swap(mux *Mux) *Mux { return p.mux.Swap(mux) }
