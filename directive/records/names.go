package records

import (
	"encoding/binary"
	"iter"
	"strings"
	"sync/atomic"

	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// Names has records by owner name. One goroutine at a time changes it; readers take no lock. The
// zero value is empty.
type names struct {
	exact     zone.Table[entry]
	wildcards zone.Table[entry] // by the name after "*."
	ancestors zone.Table[int]   // how many owner names are below a name
	deepest   atomic.Int32      // an upper bound of the labels of the names in wildcards
	hasWild   atomic.Bool
}

// An entry has the records of one owner name. Its value is packed: see draft.pack.
type entry objects.Entry

// wildcard is the first label of a wildcard name.
const wildcard = "\x01*"

// Set sets the entry of an owner name.
func (x *names) Set(owner wire.Name, e *objects.Entry) {
	table, key := x.tableOf(owner)
	if table.Get([]byte(key)) == nil {
		x.count(owner, 1)
	}
	table.Set(key, (*entry)(e))
	if table == &x.wildcards {
		x.deepest.Store(max(x.deepest.Load(), int32(wire.Name(key).Labels())))
		x.hasWild.Store(true)
	}
}

// Delete removes an owner name, which has an entry.
func (x *names) Delete(owner wire.Name) {
	table, key := x.tableOf(owner)
	table.Delete(key)
	x.count(owner, -1)
	x.hasWild.Store(x.wildcards.Len() > 0)
}

// Get returns the entry of an owner name, or nil. For a wildcard that is its own.
func (x *names) Get(owner wire.Name) *objects.Entry {
	table, key := x.tableOf(owner)
	return (*objects.Entry)(table.Get([]byte(key)))
}

// tableOf returns the table that has an owner name, and its key there.
func (x *names) tableOf(owner wire.Name) (table *zone.Table[entry], key string) {
	if parent, ok := strings.CutPrefix(string(owner), wildcard); ok {
		return &x.wildcards, parent
	}
	return &x.exact, string(owner)
}

// count adds n to the owner names below each ancestor of a name.
func (x *names) count(owner wire.Name, n int) {
	for up := owner; up != wire.Root; {
		up = up[1+up[0]:]
		before := 0
		if c := x.ancestors.Get([]byte(up)); c != nil {
			before = *c
		}
		if now := before + n; now == 0 {
			x.ancestors.Delete(string(up))
		} else {
			x.ancestors.Set(string(up), &now)
		}
	}
}

// exists reports whether names below a name have records.
func (x *names) exists(name []byte) bool { return x.ancestors.Get(name) != nil }

// wild returns the entry of the longest wildcard that matches a name in lower case, and the length
// of the name after "*.". It returns nil if there is none.
func (x *names) wild(name []byte) (e *entry, length int) {
	if !x.hasWild.Load() {
		return nil, 0
	}
	for deeper := wire.Labels(name) - int(x.deepest.Load()); len(name) > 1; deeper-- {
		name = name[1+name[0]:]
		if deeper > 1 {
			continue
		}
		if e = x.wildcards.Get(name); e != nil {
			return e, len(name)
		}
	}
	return nil, 0
}

// An rrset is the records of one owner name and type, as they are packed.
type rrset struct {
	t       wire.Type
	ttl     uint32
	records string
}

// rrsets returns the record sets of an entry.
func (e *entry) rrsets() iter.Seq[rrset] {
	return func(yield func(rrset) bool) {
		for rest := e.Value; rest != ""; {
			var s rrset
			if s, rest = nextSet(rest); !yield(s) {
				return
			}
		}
	}
}

// target returns the target of the entry's CNAME record, appended to room, or nil if it has none.
func (e *entry) target(room []byte) []byte {
	if s, _ := nextSet(e.Value); s.t == wire.TypeCNAME { // a CNAME record is alone
		r, _ := nextRecord(s.records)
		return append(room, r.rdata...)
	}
	return nil
}

// A record is the RDATA of one record.
type record struct {
	rdata    string
	repeated bool // a record before it in the set has the same target
}

// The packed form of a set: its type in two bytes, its TTL in four, the size of its records as a
// varint, and the records. A record is a varint with twice the length of the RDATA, plus one if it
// is repeated, and the RDATA.

func appendSet(buf []byte, s rrset) []byte {
	buf = binary.BigEndian.AppendUint16(buf, uint16(s.t))
	buf = binary.BigEndian.AppendUint32(buf, s.ttl)
	return append(binary.AppendUvarint(buf, uint64(len(s.records))), s.records...)
}

func nextSet(rest string) (s rrset, after string) {
	s.t = wire.Type(rest[0])<<8 | wire.Type(rest[1])
	s.ttl = uint32(rest[2])<<24 | uint32(rest[3])<<16 | uint32(rest[4])<<8 | uint32(rest[5])
	size, rest := zone.Varint(rest[6:])
	s.records = rest[:size]
	return s, rest[size:]
}

func appendRecord(buf []byte, r record) []byte {
	size := uint64(len(r.rdata)) << 1
	if r.repeated {
		size |= 1
	}
	return append(binary.AppendUvarint(buf, size), r.rdata...)
}

func nextRecord(rest string) (r record, after string) {
	size, rest := zone.Varint(rest)
	return record{rest[:size>>1], size&1 != 0}, rest[size>>1:]
}

// all returns the owner names and their entries, for any reader.
func (x *names) all() iter.Seq2[wire.Name, *entry] {
	return func(yield func(wire.Name, *entry) bool) {
		for owner, e := range x.exact.All() {
			if !yield(wire.Name(owner), e) {
				return
			}
		}
		for parent, e := range x.wildcards.All() {
			if !yield(wire.Name(wildcard+parent), e) {
				return
			}
		}
	}
}
