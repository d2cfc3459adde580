package dynupdate

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// An edit has the names of a zone that an update is about, with their records.
type edit struct {
	zone  *zone.Zone
	names map[wire.Name]*editedName
	room  *memory.Claim // of what the edit has read
	bytes int64

	changed, hasSerial bool // hasSerial: a change has set the serial number
}

// An editedName is a name with its records by type. None of the sets is empty unless it was changed.
type editedName struct {
	owner string // as it is spelled
	sets  map[wire.Type]*rrset
}

// An rrset is the records of one name and type, by the form in which they are compared.
type rrset struct {
	ttl     uint32
	records map[string]rdata
	before  int // the number of records in the zone
	next    int // the position of the next record
	changed bool
}

// rdata is the data of a record and its position in the set.
type rdata struct {
	data     string
	position int
}

// editSize is the memory of a record in an edit beside its data, about.
const editSize = 150

// at returns a name for prerequisites and changes. An owner is the spelling of a new name.
func (e *edit) at(name wire.Name, owner string) (*editedName, error) {
	if n := e.names[name]; n != nil {
		return n, nil
	}

	n := &editedName{owner: owner, sets: map[wire.Type]*rrset{}}
	e.names[name] = n
	e.bytes += editSize + int64(len(owner))
	if o, ok := e.zone.Owner(name); ok {
		n.owner = o.Name
		o.RRsets(func(t wire.Type, ttl uint32, all []string) {
			s := n.set(t)
			s.ttl, s.before = ttl, len(all)
			for _, data := range all {
				s.add(comparableOf(t, data), data)
				e.bytes += editSize + 2*int64(len(data))
			}
		})
	}
	return n, e.room.Grow(e.bytes)
}

// comparableOf is comparable for the RDATA of a record in the zone.
func comparableOf(t wire.Type, data string) string {
	record := append(wire.AppendRecordHeader(nil, "\x00", t, 0, len(data)), data...)
	at, _ := wire.ReadRecord(record, 0)
	return comparable(record, at)
}

// set returns the records of a type, which may be none.
func (n *editedName) set(t wire.Type) *rrset {
	s := n.sets[t]
	if s == nil {
		s = &rrset{records: map[string]rdata{}}
		n.sets[t] = s
	}
	return s
}

// has reports whether the name has records of a type.
func (n *editedName) has(t wire.Type) bool { return n.sets[t] != nil && len(n.sets[t].records) > 0 }

// exists reports whether the name has records.
func (n *editedName) exists() bool {
	for _, s := range n.sets {
		if len(s.records) > 0 {
			return true
		}
	}
	return false
}

func (s *rrset) add(key, data string) {
	s.records[key] = rdata{data, s.next}
	s.next++
}

// put adds a record. All records of a set have the TTL of the last one (RFC 2181 §5.2).
func (s *rrset) put(r *record) (changed bool) {
	if _, ok := s.records[r.key]; !ok {
		s.add(r.key, r.rdata)
		changed = true
	}
	changed = changed || s.ttl != r.ttl
	s.ttl, s.changed = r.ttl, s.changed || changed
	return changed
}

// replace makes a record the only one.
func (s *rrset) replace(r *record) (changed bool) {
	if has, ok := s.records[r.key]; ok && has.data == r.rdata && s.ttl == r.ttl {
		return false
	}
	clear(s.records)
	return s.put(r)
}

// remove removes the record that is compared by key.
func (s *rrset) remove(key string) (changed bool) {
	_, changed = s.records[key]
	delete(s.records, key)
	s.changed = s.changed || changed
	return changed
}

// removeAll removes all records.
func (s *rrset) removeAll() (changed bool) {
	changed = len(s.records) > 0
	clear(s.records)
	s.changed = s.changed || changed
	return changed
}

// soa returns the only SOA record, which every version of the zone has.
func (s *rrset) soa() (key string, serial uint32, data string) {
	for key, r := range s.records {
		return key, binary.BigEndian.Uint32([]byte(r.data[len(r.data)-20:])), r.data
	}
	return "", 0, ""
}

// version returns the version of the zone with the changes. before is the number of records so far.
func (e *edit) version(before int) (*version, error) {
	b := e.zone.Edit()
	count := before
	for _, n := range e.names {
		for t, s := range n.sets {
			if !s.changed {
				continue
			}
			count += len(s.records) - s.before
			if len(s.records) >= zone.MaxRecords {
				return nil, reject(wire.Refused, "more records of a name and type than fit into a message")
			}
			if err := b.RemoveRRset(n.owner, t); err != nil {
				return nil, err
			}
		}

		for t, s := range n.sets {
			if !s.changed {
				continue
			}
			ordered := slices.SortedFunc(maps.Values(s.records), func(a, b rdata) int { return cmp.Compare(a.position, b.position) })
			for _, r := range ordered {
				if err := b.Add(n.owner, t, s.ttl, r.data); err != nil {
					return nil, reject(wire.Refused, "%v", err)
				}
			}
		}
	}
	return &version{zone: b.Zone(), records: count}, nil
}
