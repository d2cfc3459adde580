package zone

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/seamark/seamark/wire"
)

// A draft is a node that is being changed.
type draft struct {
	draftKey
	name  string // complete, with the zone file's spelling
	sets  []rrset
	bytes int // of the records when the draft was opened: see Zone.Bytes
	added int // bytes of memory until the draft is closed
	// seen has the records of RRsets with maxSearched records or more, to find duplicates.
	seen map[seenRecord]struct{}
}

// A draftKey identifies a draft.
type draftKey struct {
	key     string // the name in lower case, without the zone's name
	isNSEC3 bool
}

// An rrset is the records of one type of a draft, and their signatures, in the form of
// package wire's answers, with the query name as owner.
type rrset struct {
	t       wire.Type
	n       int
	records []byte
	nSigs   int
	sigs    []byte
}

// A seenRecord identifies a record of a draft.
type seenRecord struct {
	covered, t wire.Type
	rdata      string
}

// unpack returns an RRset of a node for a draft.
func (z *Zone) unpack(s set) rrset {
	r := rrset{t: s.t, n: s.count, nSigs: s.sigCount}
	if s.count > 0 {
		r.records = make([]byte, 0, len(s.records)+s.count*headLen)
	}

	appendRecord := func(buf []byte, t wire.Type, ttl uint32, at stored) []byte {
		return z.appendRData(wire.AppendRecordHeader(buf, wire.OwnerIsQuestion, t, ttl, at.len()), s.n, at)
	}

	for rest := s.records; rest != ""; {
		var at stored
		at, rest = nextRecord(rest)
		r.records = appendRecord(r.records, s.t, s.ttl, at)
	}

	for rest := s.sigs; rest != ""; {
		var at stored
		var ttl uint32
		at, ttl, rest = nextSig(rest)
		r.sigs = appendRecord(r.sigs, wire.TypeRRSIG, ttl, at)
	}
	return r
}

// size returns the bytes of the records in wire form, with names written out.
func (d *draft) size() (n int) {
	for i := range d.sets {
		s := &d.sets[i]
		n += len(s.records) + len(s.sigs) + (s.n+s.nSigs)*(len(d.name)-len(wire.OwnerIsQuestion))
	}
	return n
}

// maxTypes is the number of types that a name may have. BIND allows 100.
const maxTypes = 1000

// conflict returns an error if a record must not coexist with those of d (RFC 1034
// §3.6.2, RFC 2181 §10.1, RFC 6672 §2.4).
func (d *draft) conflict(name wire.Name, t wire.Type, rdata string) error {
	if t == wire.TypeCNAME || t == wire.TypeDNAME || t == wire.TypeSOA {
		if s := d.get(t); s != nil && s.n > 0 && string(s.rdata()) != rdata {
			return fmt.Errorf("%s: a second %s record", name, t)
		}
	}

	if t == wire.TypeNSEC {
		return nil
	}

	if t != wire.TypeCNAME {
		if s := d.get(wire.TypeCNAME); s != nil && s.n > 0 {
			return fmt.Errorf("%s: %s record %w", name, t, ErrCNAMEConflict)
		}
		return nil
	}

	for i := range d.sets {
		if s := &d.sets[i]; s.n > 0 && s.t != wire.TypeCNAME && s.t != wire.TypeNSEC {
			return fmt.Errorf("%s: %s record %w", name, s.t, ErrCNAMEConflict)
		}
	}
	return nil
}

const (
	// MaxRecords is more records of one name and type than a message can hold. A zone has no more.
	MaxRecords = wire.MaxMessage/headLen + 1
	// maxSearched is the number of records up to which they are compared one by one to find
	// duplicates.
	maxSearched = 64
	// seenSize is the memory of a record in seen beside its RDATA.
	seenSize = 64
)

// find returns the offset of a record or signature, or -1.
func (s *rrset) find(t wire.Type, rdata string) int {
	records := s.records
	if t == wire.TypeRRSIG {
		records = s.sigs
	}
	for r := range eachRecord(records) {
		if string(records[r.RData:r.Next]) == rdata {
			return r.Owner
		}
	}
	return -1
}

// add appends a record to those of its RRset, unless the RRset has it or has more records
// than a message can hold.
func (d *draft) add(covered wire.Type, records []byte, count int, t wire.Type, ttl uint32, rdata string) ([]byte, int) {
	if count >= MaxRecords {
		return records, count
	}

	key := seenRecord{covered, t, rdata}
	if count < maxSearched {
		for i := 0; i < len(records); {
			next := i + headLen + int(binary.BigEndian.Uint16(records[i+headLen-2:]))
			if string(records[i+headLen:next]) == rdata {
				return records, count
			}
			i = next
		}
	} else {
		first := records[headLen : headLen+int(binary.BigEndian.Uint16(records[headLen-2:]))]
		if _, ok := d.seen[seenRecord{covered, t, string(first)}]; !ok {
			d.addSeen(covered, t, records)
		}
		if _, ok := d.seen[key]; ok {
			return records, count
		}
		d.seen[key] = struct{}{}
		d.added += seenSize + len(rdata)
	}

	d.added += headLen + len(rdata)
	records = wire.AppendRecordHeader(records, wire.OwnerIsQuestion, t, ttl, len(rdata))
	return append(records, rdata...), count + 1
}

// addSeen adds the records of an RRset to seen.
func (d *draft) addSeen(covered, t wire.Type, records []byte) {
	if d.seen == nil {
		d.seen = map[seenRecord]struct{}{}
	}
	for r := range eachRecord(records) {
		d.seen[seenRecord{covered, t, string(records[r.RData:r.Next])}] = struct{}{}
		d.added += seenSize + r.Next - r.RData
	}
}

// get returns the RRset of type t, or nil. sets is sorted by type.
func (d *draft) get(t wire.Type) *rrset {
	if i, ok := d.search(t); ok {
		return &d.sets[i]
	}
	return nil
}

// search returns the position of the RRset of type t in d.sets.
func (d *draft) search(t wire.Type) (i int, ok bool) {
	return slices.BinarySearchFunc(d.sets, t, func(s rrset, t wire.Type) int { return int(s.t) - int(t) })
}

// rdata returns the RDATA of the first record.
func (s *rrset) rdata() []byte {
	return s.records[headLen : headLen+int(binary.BigEndian.Uint16(s.records[headLen-2:]))]
}

func eachRecord(records []byte) iter.Seq[wire.Record] {
	return func(yield func(wire.Record) bool) {
		for off := 0; off < len(records); {
			r, ok := wire.ReadRecord(records, off)
			if !ok || !yield(r) {
				return
			}
			off = r.Next
		}
	}
}
