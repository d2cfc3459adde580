package dynupdate

import (
	"encoding/binary"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// apply applies a message to an edit, by the rules and in the order of CoreDNS: prerequisites,
// permissions, and the prescan of the changes (RFC 2136 §3.2 to 3.4). An error means that the zone
// must not change.
func (o *options) apply(e *edit, m message, key wire.Name) error {
	if err := o.checkPrerequisites(e, m.prerequisites); err != nil {
		return err
	}
	for i := range m.changes {
		if r := &m.changes[i]; !o.allows(key, r.name, r.t) {
			return reject(wire.Refused, "no line allow of key %s has %s with type %s", key, r.name, r.t)
		}
	}
	for i := range m.changes {
		if err := o.prescan(&m.changes[i]); err != nil {
			return err
		}
	}

	for i := range m.changes {
		r := &m.changes[i]
		n, err := e.at(r.name, r.owner)
		if err != nil {
			return err
		}
		if o.change(e, n, r) {
			e.changed = true
		}
	}

	if !e.changed || e.hasSerial {
		return nil
	}
	return o.increment(e)
}

// checkPrerequisites checks the prerequisites (RFC 2136 §3.2).
func (o *options) checkPrerequisites(e *edit, all []record) error {
	type setKey struct {
		name wire.Name
		t    wire.Type
	}
	values := map[setKey]map[string]bool{} // the records that an RRset must have, and no others
	for i := range all {
		r := &all[i]
		switch {
		case r.ttl != 0:
			return reject(wire.FormErr, "a prerequisite for %s has a TTL", r.name)
		case !r.name.Within(o.origin):
			return reject(wire.NotZone, "a prerequisite for %s, which is not in the zone", r.name)
		case derived(r.t):
			return reject(wire.NotImp, "a prerequisite of type %s", r.t)
		case r.class != wire.ClassIN && r.hasRData, r.t.IsMeta() && (r.t != wire.TypeANY || r.class == wire.ClassIN):
			return reject(wire.FormErr, "a prerequisite for %s has data, or is of type %s", r.name, r.t)
		}

		n, err := e.at(r.name, r.owner)
		if err != nil {
			return err
		}
		exists := n.exists
		missing, present := wire.NXDomain, wire.YXDomain
		if r.t != wire.TypeANY {
			exists = func() bool { return n.has(r.t) }
			missing, present = wire.NXRRSet, wire.YXRRSet
		}

		switch {
		case r.class == wire.ClassANY && !exists():
			return reject(missing, "%s %s does not exist", r.name, r.t)
		case r.class == classNONE && exists():
			return reject(present, "%s %s exists", r.name, r.t)
		case r.class == wire.ClassANY || r.class == classNONE:
		case r.class != wire.ClassIN:
			return reject(wire.FormErr, "a prerequisite for %s has the class %s", r.name, r.class)
		default:
			k := setKey{r.name, r.t}
			if values[k] == nil {
				values[k] = map[string]bool{}
			}
			values[k][r.key] = true
		}
	}

	for k, want := range values {
		s := e.names[k.name].set(k.t)
		same := len(s.records) == len(want)
		for key := range want {
			_, ok := s.records[key]
			same = same && ok
		}
		if !same {
			return reject(wire.NXRRSet, "%s %s has other records", k.name, k.t)
		}
	}
	return nil
}

// prescan checks the form of a change (RFC 2136 §3.4.1).
func (o *options) prescan(r *record) error {
	if !r.name.Within(o.origin) {
		return reject(wire.NotZone, "a change of %s, which is not in the zone", r.name)
	}

	ok := !r.t.IsMeta()
	switch r.class {
	case wire.ClassIN:
		// Serial number 0 is not compatible with old servers (RFC 2136 §4.2, §7.11).
		ok = ok && (r.t != wire.TypeSOA || r.name == o.origin && zone.SOASerial([]byte(r.rdata)) != 0)
	case wire.ClassANY:
		ok = (ok || r.t == wire.TypeANY) && r.ttl == 0 && !r.hasRData
	case classNONE:
		ok = ok && r.ttl == 0
	default:
		ok = false
	}

	switch {
	case !ok:
		return reject(wire.FormErr, "a malformed change of %s %s in class %s", r.name, r.t, r.class)
	case derived(r.t):
		return reject(wire.NotImp, "a change of type %s", r.t)
	}
	return nil
}

// change makes one change, or ignores it (RFC 2136 §3.4.2). It reports whether the zone has changed.
func (o *options) change(e *edit, n *editedName, r *record) (changed bool) {
	isApex := r.name == o.origin
	switch {
	case r.class == wire.ClassIN:
		return o.add(e, n, r)

	case r.class == classNONE:
		// The zone keeps its SOA record, and one of its NS records.
		if isApex && (r.t == wire.TypeSOA || r.t == wire.TypeNS && len(n.set(r.t).records) <= 1) {
			return false
		}
		return n.set(r.t).remove(r.key)

	default:
		for t, s := range n.sets {
			kept := isApex && (t == wire.TypeSOA || t == wire.TypeNS)
			if !kept && (r.t == wire.TypeANY || r.t == t) && s.removeAll() {
				changed = true
			}
		}
		return changed
	}
}

// add adds a record, or replaces one of a type of which a name has one at most. A CNAME record and
// others exclude each other: the record that is there first stays. RFC 6672 §5.2 adds DNAME.
func (o *options) add(e *edit, n *editedName, r *record) (changed bool) {
	s := n.set(r.t)
	switch r.t {
	case wire.TypeSOA:
		if _, serial, _ := s.soa(); !zone.SerialLess(serial, zone.SOASerial([]byte(r.rdata))) {
			return false
		}
		e.hasSerial = true
		return s.replace(r)

	case wire.TypeCNAME:
		for t := range n.sets {
			if t != wire.TypeCNAME && n.has(t) {
				return false
			}
		}
		return s.replace(r)
	}

	switch {
	case n.has(wire.TypeCNAME):
		return false
	case r.t == wire.TypeDNAME:
		return s.replace(r)
	}
	return s.put(r)
}

// increment increments the serial number, which is never 0 (RFC 2136 §7.11).
func (o *options) increment(e *edit) error {
	n, err := e.at(o.origin, string(o.origin))
	if err != nil {
		return err
	}

	s := n.set(wire.TypeSOA)
	key, serial, data := s.soa()
	if serial++; serial == 0 {
		serial = 1
	}
	next := []byte(data)
	binary.BigEndian.PutUint32(next[len(next)-20:], serial)
	s.remove(key)
	s.add(comparableOf(wire.TypeSOA, string(next)), string(next))
	return nil
}
