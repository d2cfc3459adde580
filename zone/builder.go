package zone

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/seamark/seamark/wire"
)

// A Builder makes a zone from records, or from another version of the zone and the records
// that differ. Then the new version shares the memory of all other names with the old one.
type Builder struct {
	zone  *Zone
	names namesEdit
	nsec3 namesEdit // owners of NSEC3 records: such a name does not exist for other types (RFC 5155 §7.2.8)

	current *draft
	large   map[draftKey]*draft // open until the zone is complete, since they cost much to encode
	pending int                 // bytes that were added to open drafts
	orphans map[draftKey]bool   // names that may have signatures without records
	encoder encoder

	isEdit       bool // made from another version
	changedApex  bool
	changedCuts  bool // delegations or DNAME records
	changedNSEC  bool // owners of NSEC records
	changedNSEC3 bool
}

// A draft is a node that is being changed.
type draft struct {
	draftKey
	name  string // complete, with the zone file's spelling
	sets  []rrset
	bytes int // of the records when the draft was opened: see Zone.Bytes
	added int // bytes
	// seen has the records of RRsets with more than few records, to find duplicates.
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

// maxDraft is the size in bytes from which on a draft is large.
const maxDraft = 8 << 10

// NewBuilder returns a Builder for the zone origin.
func NewBuilder(origin wire.Name) *Builder {
	z := &Zone{origin: origin, apex: []byte(origin), deepest: origin.Labels()}
	b := newBuilder(z, newNames(origin), newNames(origin))
	b.changedApex = true
	b.names.add(nil, "\x00\x00")
	return b
}

// Edit returns a Builder that has all records of z, which it does not change.
func (z *Zone) Edit() *Builder {
	next := *z
	b := newBuilder(&next, z.names.edit(), z.nsec3Names.edit())
	b.isEdit = true
	return b
}

func newBuilder(z *Zone, names, nsec3 namesEdit) *Builder {
	return &Builder{zone: z, names: names, nsec3: nsec3, large: map[draftKey]*draft{}, orphans: map[draftKey]bool{}, encoder: encoder{origin: z.origin}}
}

// Errors of Add that a caller may ignore.
var (
	// ErrOutOfZone is the error for a record whose owner is not in the zone.
	ErrOutOfZone = errors.New("out of zone")
	// ErrCNAMEConflict is the error for a CNAME record at a name that has other
	// records, or the other way round (RFC 1034 §3.6.2). Add still adds the record; a
	// resolver that has cached the CNAME record may not find the others.
	ErrCNAMEConflict = errors.New("beside a CNAME")
)

// Add adds a record of class IN. owner is in wire form, and the zone keeps its
// spelling; rdata is in wire form with uncompressed names. Add ignores duplicates.
// Unless the error is ErrCNAMEConflict, a record with an error is not added.
func (b *Builder) Add(owner string, t wire.Type, ttl uint32, rdata string) error {
	d, covered, err := b.open(owner, t, rdata)
	if err != nil {
		return err
	}
	name := wire.Lower(owner)
	if t == wire.TypeSOA && name != b.zone.origin {
		return fmt.Errorf("%s: SOA record below the zone's name %s", name, b.zone.origin)
	}
	if len(d.sets) == 0 {
		d.name = owner
	} else if t != wire.TypeRRSIG {
		if err = d.conflict(name, t, rdata); err != nil && !errors.Is(err, ErrCNAMEConflict) {
			return err
		}
	}
	i, ok := d.search(covered)
	if !ok {
		if len(d.sets) == maxTypes {
			return fmt.Errorf("%s: more than %d types of records", name, maxTypes)
		}
		d.sets = slices.Insert(d.sets, i, rrset{t: covered})
	}
	s := &d.sets[i]
	before := d.added
	if t == wire.TypeRRSIG {
		s.sigs, s.nSigs = d.add(covered, s.sigs, s.nSigs, t, ttl, rdata)
	} else {
		s.records, s.n = d.add(covered, s.records, s.n, t, ttl, rdata)
	}
	b.pending += d.added - before
	return err
}

// Has reports whether the zone has a record, with any TTL. It returns the same errors as Add.
func (b *Builder) Has(owner string, t wire.Type, rdata string) (bool, error) {
	d, covered, err := b.open(owner, t, rdata)
	if err != nil {
		return false, err
	}
	i, ok := d.search(covered)
	return ok && d.sets[i].find(t, rdata) >= 0, nil
}

// Remove removes a record with any TTL, and reports whether the zone had it. The errors are
// those of Add.
func (b *Builder) Remove(owner string, t wire.Type, rdata string) (bool, error) {
	d, covered, err := b.open(owner, t, rdata)
	if err != nil {
		return false, err
	}
	i, ok := d.search(covered)
	if !ok {
		return false, nil
	}
	s := &d.sets[i]
	off := s.find(t, rdata)
	if off < 0 {
		return false, nil
	}
	if t == wire.TypeRRSIG {
		s.sigs, s.nSigs = slices.Delete(s.sigs, off, off+headLen+len(rdata)), s.nSigs-1
	} else {
		s.records, s.n = slices.Delete(s.records, off, off+headLen+len(rdata)), s.n-1
	}
	delete(d.seen, seenRecord{covered, t, rdata})
	if s.n == 0 && s.nSigs == 0 {
		d.sets = slices.Delete(d.sets, i, i+1)
	}
	return true, nil
}

// open returns the draft of the name of a record, and the type of its RRset.
func (b *Builder) open(owner string, t wire.Type, rdata string) (d *draft, covered wire.Type, err error) {
	name := wire.Lower(owner)
	if !name.Within(b.zone.origin) {
		return nil, 0, fmt.Errorf("%s: %w %s", name, ErrOutOfZone, b.zone.origin)
	}
	covered = t
	switch {
	case t == wire.TypeNSEC3 || t == wire.TypeNSEC3PARAM:
		if _, err := parseNSEC3(t, rdata); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", name, err)
		}
	case t == wire.TypeRRSIG:
		if len(rdata) < 19 {
			return nil, 0, fmt.Errorf("%s: malformed RRSIG record", name)
		}
		covered = wire.Type(rdata[0])<<8 | wire.Type(rdata[1])
	}
	key := draftKey{string(name[:len(name)-len(b.zone.origin)]), covered == wire.TypeNSEC3}
	if key.isNSEC3 {
		if err := checkNSEC3Owner(key.key); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", name, err)
		}
	}
	return b.draft(key, owner), covered, nil
}

// draft returns the draft of a name, which becomes the current one.
func (b *Builder) draft(key draftKey, owner string) *draft {
	if b.current != nil && b.current.draftKey == key {
		return b.current
	}
	b.close(false)
	if b.current = b.large[key]; b.current != nil {
		return b.current
	}
	d := &draft{draftKey: key, name: owner}
	b.current = d
	n := b.table(key).get([]byte(key.key))
	if n == nil {
		return d
	}
	d.name = string(b.zone.appendName(nil, n))
	for rest := n.sets(); rest != ""; {
		var s set
		rest = s.read(n, rest)
		d.sets = append(d.sets, b.zone.unpack(s))
	}
	d.bytes = d.size()
	return d
}

func (b *Builder) table(key draftKey) *namesEdit {
	if key.isNSEC3 {
		return &b.nsec3
	}
	return &b.names
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

// close ends the changes of the current draft. A large one stays open unless all is set.
func (b *Builder) close(all bool) {
	d := b.current
	if b.current = nil; d == nil {
		return
	}
	if !all && d.size() > maxDraft {
		b.large[d.draftKey] = d
		return
	}
	b.pending -= d.added
	b.zone.bytes += d.size() - d.bytes
	for i := range d.sets {
		if d.sets[i].n == 0 {
			b.orphans[d.draftKey] = true
		}
	}
	key, t := []byte(d.key), b.table(d.draftKey)
	n := t.get(key)
	if len(d.sets) == 0 && (n == nil || d.key != "" && n.meta&children == 0) {
		if n != nil {
			b.remove(d.draftKey)
		}
		return
	}
	data := b.encoder.encode(d)
	var kinds byte
	if n != nil {
		kinds = n.data[0]
		b.zone.memory += len(data) - len(n.data)
		t.change(key).data = data
	} else {
		b.add(d.draftKey, d.name, data)
	}
	b.note(d.draftKey, kinds, data[0])
}

// note records the names that a change of a node's kinds affects.
func (b *Builder) note(key draftKey, before, after byte) {
	if key.isNSEC3 {
		b.changedNSEC3 = true
		return
	}
	b.changedApex = b.changedApex || key.key == ""
	b.changedCuts = b.changedCuts || (before^after)&(isDelegation|hasDNAME) != 0
	b.changedNSEC = b.changedNSEC || (before^after)&hasNSEC != 0
}

// nodeSize is the memory of a node beside its data: the node in a bucket with some room, and
// what an allocation is larger.
const nodeSize = 24 + 24

// add adds a node, and its ancestors if they do not exist.
func (b *Builder) add(key draftKey, spelled, data string) {
	b.zone.memory += len(data) + nodeSize
	t := b.table(key)
	t.add([]byte(key.key), data)
	if key.isNSEC3 {
		return
	}
	b.zone.deepest = max(b.zone.deepest, countLabels([]byte(spelled)))
	above := draftKey{key: key.key[1+key.key[0]:]}
	parent := t.change([]byte(above.key))
	if parent == nil {
		spelled := spelled[1+spelled[0]:]
		b.add(above, spelled, b.encoder.encode(&draft{draftKey: above, name: spelled}))
		parent = t.change([]byte(above.key))
	}
	parent.meta++
	if isWildcard(key.key) {
		parent.meta |= hasWildcard
	}
	if parent.meta&isHidden != 0 || parent.is(isDelegation|hasDNAME) {
		t.change([]byte(key.key)).meta |= isHidden
	}
}

// remove removes a node without records and names below it, and its ancestors that no longer
// exist.
func (b *Builder) remove(key draftKey) {
	t := b.table(key)
	n := t.get([]byte(key.key))
	b.zone.memory -= len(n.data) + nodeSize
	b.note(key, n.data[0], 0)
	t.remove([]byte(key.key))
	if key.isNSEC3 {
		return
	}
	above := draftKey{key: key.key[1+key.key[0]:]}
	parent := t.change([]byte(above.key))
	parent.meta--
	if isWildcard(key.key) {
		parent.meta &^= hasWildcard
	}
	if _, isOpen := b.large[above]; parent.meta&children == 0 && !parent.hasSets() && above.key != "" && !isOpen {
		b.remove(above)
	}
}

// Size returns about as many bytes as the zone needs in memory.
func (b *Builder) Size() int { return b.zone.memory + b.pending }

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
	// maxRecords is more records of one name and type than a message can hold.
	maxRecords = wire.MaxMessage/headLen + 1
	// few records are compared one by one to find duplicates.
	few = 64
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
	if count >= maxRecords {
		return records, count
	}
	key := seenRecord{covered, t, rdata}
	if count < few {
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
			d.note(covered, t, records)
		}
		if _, ok := d.seen[key]; ok {
			return records, count
		}
		d.seen[key] = struct{}{}
	}
	d.added += headLen + len(rdata)
	records = wire.AppendRecordHeader(records, wire.OwnerIsQuestion, t, ttl, len(rdata))
	return append(records, rdata...), count + 1
}

// note adds the records of an RRset to seen.
func (d *draft) note(covered, t wire.Type, records []byte) {
	if d.seen == nil {
		d.seen = map[seenRecord]struct{}{}
	}
	for r := range eachRecord(records) {
		d.seen[seenRecord{covered, t, string(records[r.RData:r.Next])}] = struct{}{}
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
