package zone

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seamark/seamark/wire"
)

// A Builder makes a zone from records, or from another version of the zone and the records
// that differ. Then the new version shares the memory of all other names with the old one.
type Builder struct {
	zone  *Zone
	names namesEdit
	nsec3 namesEdit // owners of NSEC3 records: such a name does not exist for other types (RFC 5155 §7.2.8)

	last      *draft              // of the name that was changed last
	large     map[draftKey]*draft // kept open until the zone is complete, since they cost much to encode
	openBytes int                 // of open drafts
	sigsOnly  map[draftKey]bool   // names that may have signatures without records
	encoder   encoder

	isEdit       bool // made from another version
	changedApex  bool
	changedCuts  bool // delegations or DNAME records
	changedNSEC  bool // owners of NSEC records
	changedNSEC3 bool
}

// minLarge is the size in bytes above which a draft is large.
const minLarge = 8 << 10

// NewBuilder returns a Builder for the zone origin.
func NewBuilder(origin wire.Name) *Builder {
	z := &Zone{origin: origin, apex: []byte(origin), maxLabels: origin.Labels()}
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
	return &Builder{
		zone: z, names: names, nsec3: nsec3, encoder: encoder{origin: z.origin},
		large: map[draftKey]*draft{}, sigsOnly: map[draftKey]bool{},
	}
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

// maxTTL is the largest TTL: with the highest bit set a TTL is zero (RFC 2181 §8).
const maxTTL = 1<<31 - 1

// Add adds a record of class IN. owner is in wire form, and the zone keeps its
// spelling; rdata is in wire form with uncompressed names. Add ignores duplicates.
// Unless the error is ErrCNAMEConflict, a record with an error is not added.
func (b *Builder) Add(owner string, t wire.Type, ttl uint32, rdata string) error {
	if ttl > maxTTL {
		ttl = 0
	}
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
	b.openBytes += d.added - before
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

// RemoveRRset removes the records of a name and type, and their signatures. The errors are those
// of Add.
func (b *Builder) RemoveRRset(owner string, t wire.Type) error {
	d, _, err := b.open(owner, t, "")
	if err != nil {
		return err
	}
	if i, ok := d.search(t); ok {
		d.sets = slices.Delete(d.sets, i, i+1)
		maps.DeleteFunc(d.seen, func(r seenRecord, _ struct{}) bool { return r.covered == t })
	}
	return nil
}

// open returns the draft of the name of a record, and the type of its RRset.
func (b *Builder) open(owner string, t wire.Type, rdata string) (d *draft, covered wire.Type, err error) {
	name := wire.Lower(owner)
	if !name.Within(b.zone.origin) {
		return nil, 0, fmt.Errorf("%s: %w %s", name, ErrOutOfZone, b.zone.origin)
	}

	// Signatures are kept with the RRset that they cover.
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

// draft returns the draft of a name, which becomes the last one.
func (b *Builder) draft(key draftKey, owner string) *draft {
	if b.last != nil && b.last.draftKey == key {
		return b.last
	}
	b.close(false)
	if b.last = b.large[key]; b.last != nil {
		return b.last
	}

	d := &draft{draftKey: key, name: owner}
	b.last = d
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
	d.added = d.bytes
	b.openBytes += d.added
	return d
}

func (b *Builder) table(key draftKey) *namesEdit {
	if key.isNSEC3 {
		return &b.nsec3
	}
	return &b.names
}

// close ends the changes of the last draft. A large one stays open unless all is set.
func (b *Builder) close(all bool) {
	d := b.last
	if b.last = nil; d == nil {
		return
	}
	if !all && d.size() > minLarge {
		b.large[d.draftKey] = d
		return
	}

	b.openBytes -= d.added
	b.zone.bytes += d.size() - d.bytes
	if slices.ContainsFunc(d.sets, func(s rrset) bool { return s.n == 0 }) {
		b.sigsOnly[d.draftKey] = true
	}

	// A name without records exists as long as names below it do (RFC 4592 §2.2.2).
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
	b.setChanged(d.draftKey, kinds, data[0])
}

// setChanged records what a change of a node's kinds affects.
func (b *Builder) setChanged(key draftKey, before, after byte) {
	if key.isNSEC3 {
		b.changedNSEC3 = true
		return
	}
	b.changedApex = b.changedApex || key.key == ""
	b.changedCuts = b.changedCuts || (before^after)&(isDelegation|hasDNAME) != 0
	b.changedNSEC = b.changedNSEC || (before^after)&hasNSEC != 0
}

// nodeSize is the memory of a node beside its data: the node in a bucket with some room, and
// the bytes by which the allocation of the data is larger than it.
const nodeSize = 24 + 24

// add adds a node, and its ancestors if they do not exist.
func (b *Builder) add(key draftKey, spelled, data string) {
	b.zone.memory += len(data) + nodeSize
	t := b.table(key)
	t.add([]byte(key.key), data)
	if key.isNSEC3 {
		return
	}

	// The names above exist now, too (RFC 4592 §2.2.2).
	b.zone.maxLabels = max(b.zone.maxLabels, wire.Name(spelled).Labels())
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
	b.setChanged(key, n.data[0], 0)
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
func (b *Builder) Size() int { return b.zone.memory + b.openBytes }
