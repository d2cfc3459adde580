package dns

import (
	"cmp"
	"maps"
	"slices"

	"github.com/seamark/seamark/wire"
)

// OwnZones are the zones for which the handlers of a Mux answer from data of this server.
// nil has none. OwnZones are immutable while the Mux serves, but the zones of a ZoneFinder
// may change.
type OwnZones struct {
	Fixed   wire.ZoneMap[struct{}]
	finders []ownFinder
}

// An ownFinder is a ZoneFinder in the chain of a zone.
type ownFinder struct {
	served wire.Name
	ZoneFinder
}

// OwnZones returns the zones of q's Mux.
func (q *Query) OwnZones() *OwnZones {
	if q.mux == nil {
		return nil
	}
	return &q.mux.ownZones
}

// add adds the zones of chain's handlers, as far as they are within the zone that the
// chain serves.
func (z *OwnZones) add(served wire.Name, chain *Chain) {
	for _, s := range chain.steps {
		if f, ok := s.value.(ZoneFinder); ok {
			z.finders = append(z.finders, ownFinder{served, f})
		}
		authority, ok := s.value.(Authority)
		if !ok {
			continue
		}
		for _, zone := range authority.AuthoritativeZones() {
			switch {
			case wire.Within(zone, served):
				z.Fixed.Set(zone, struct{}{})
			case wire.Within(served, zone):
				z.Fixed.Set(served, struct{}{})
			}
		}
	}
}

// Equal reports whether the two have the same zones now and after each change.
func (z *OwnZones) Equal(o *OwnZones) bool {
	if z == o {
		return true
	}
	if z == nil || o == nil {
		z, o = cmp.Or(z, o), nil
		return z.empty()
	}
	return maps.Equal(z.Fixed.All(), o.Fixed.All()) && slices.Equal(z.finders, o.finders)
}

// empty reports whether there are no zones, and never will be.
func (z *OwnZones) empty() bool { return len(z.Fixed.All()) == 0 && len(z.finders) == 0 }

// Entered reports whether a name is in one of the zones, and the query name is not in
// the longest zone that contains the name. A server that answers the query then cannot
// be an authority for the name. Both names are in wire form and may have any letter
// case.
func (z *OwnZones) Entered(query, name []byte) bool {
	if z == nil || z.empty() {
		return false
	}
	var low, lowQuery [wire.MaxName]byte
	name = wire.AppendLower(low[:0], name)

	length := z.longest(name)
	return length > 0 && !wire.Within(wire.AppendLower(lowQuery[:0], query), wire.Name(name[len(name)-length:]))
}

// Contains reports whether a name, in wire form and any letter case, is in one of the zones.
func (z *OwnZones) Contains(name []byte) bool {
	if z == nil || z.empty() {
		return false
	}
	var low [wire.MaxName]byte
	return z.longest(wire.AppendLower(low[:0], name)) > 0
}

// longest returns the length of the longest zone that contains a name in lower case, zero if there
// is none.
func (z *OwnZones) longest(name []byte) int {
	_, length := z.Fixed.LongestOf(name) // of the longest zone
	for _, f := range z.finders {
		if !wire.Within(name, f.served) {
			continue
		}
		if n := f.FindZone(name); n > 0 {
			length = max(length, n, len(f.served))
		}
	}
	return length
}
