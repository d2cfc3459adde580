package dns

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/seamark/seamark/wire"
)

// A Mux finds the chain for a query to one listening address: the chain of the
// longest zone that contains the name. If a zone has several chains, it is the
// first one whose condition is met. A Mux is immutable while it serves.
type Mux struct {
	// Unserved is the chain of queries whose names are in no zone: they are
	// refused, and its observers see them. It may be nil.
	Unserved *Chain

	// Unsuitable, if not nil, returns why what Repeat was given does not repeat q's reply although it may,
	// or "". Explain calls it.
	Unsuitable func(q *Query) string

	zones    wire.ZoneMap[[]*Chain]
	ownZones OwnZones
	opcodes  uint16 // those of the chains
	lot      *ParkingLot
	onPanic  func(q *Query, cause any)

	keep    func(q *Query) // repeats replies; nil if nothing is repeated, as forget and repeats
	forget  func()
	repeats *atomic.Bool // set until another Mux serves
}

// NewMux returns a mux without zones, whose queries wait in lot. onPanic, if it is
// not nil, is called when a handler panicked; the client gets SERVFAIL.
func NewMux(lot *ParkingLot, onPanic func(q *Query, cause any)) *Mux {
	return &Mux{lot: lot, onPanic: onPanic}
}

// Route adds a chain for a zone. It is an error if the zone has a chain without a
// condition.
func (m *Mux) Route(zone wire.Name, chain *Chain) error {
	chains := m.zones.Get(zone)
	if slices.ContainsFunc(chains, func(c *Chain) bool { return c.Match == nil }) {
		return fmt.Errorf("zone %s is served twice", zone)
	}
	m.zones.Set(zone, append(chains, chain))
	m.ownZones.add(zone, chain)
	m.opcodes |= chain.opcodes
	return nil
}

// find returns the chain for q, or nil if no zone contains its name. If no condition
// of a zone is met, the parent zone serves the query. The parent, if it has a chain,
// also serves DS queries for the zone's own name (RFC 4035 §3.1.4.1).
func (m *Mux) find(q *Query) *Chain {
	var child *Chain
	for chains, at := m.zones.Longest(&q.Request, 0); at >= 0; chains, at = m.zones.Longest(&q.Request, at+1) {
		for _, chain := range chains {
			if chain.Match != nil && !chain.Match(q) {
				continue
			}
			if q.Type == wire.TypeDS && at == 0 {
				child = chain
				break
			}
			return chain
		}
	}
	return child
}

// HasLongerZone reports whether a server block of q's address has a zone that
// contains name and is longer than origin, which contains name too. name is in wire
// form.
func (q *Query) HasLongerZone(origin wire.Name, name []byte) bool {
	return q.mux.zones.HasLongerZone(origin, name)
}
