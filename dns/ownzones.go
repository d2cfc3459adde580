package dns

import "github.com/seamark/seamark/wire"

// OwnZones are the zones for which the handlers of a Mux are an Authority. They are
// immutable while the Mux serves.
type OwnZones map[wire.Name]struct{}

// OwnZones returns the zones of q's Mux.
func (q *Query) OwnZones() OwnZones {
	if q.mux == nil {
		return nil
	}
	return q.mux.ownZones
}

// add adds the zones of chain's handlers, as far as they are within the zone that the
// chain serves.
func (z OwnZones) add(served wire.Name, chain *Chain) {
	for _, s := range chain.steps {
		authority, ok := s.value.(Authority)
		if !ok {
			continue
		}
		for _, zone := range authority.AuthoritativeZones() {
			switch {
			case wire.Within(zone, served):
				z[zone] = struct{}{}
			case wire.Within(served, zone):
				z[served] = struct{}{}
			}
		}
	}
}

// Entered reports whether a name is in one of the zones, and the query name is not in
// the longest zone that contains the name. A server that answers the query then cannot
// be an authority for the name. Both names are in wire form and may have any letter
// case.
func (z OwnZones) Entered(query, name []byte) bool {
	if len(z) == 0 {
		return false
	}
	var low, lowQuery [wire.MaxName]byte
	for name = wire.AppendLower(low[:0], name); ; name = name[1+name[0]:] {
		if _, ok := z[wire.Name(name)]; ok {
			return !wire.Within(wire.AppendLower(lowQuery[:0], query), wire.Name(name))
		}
		if name[0] == 0 {
			return false
		}
	}
}
