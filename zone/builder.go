package zone

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/seamark/seamark/wire"
)

// A Builder collects the records of one zone.
type Builder struct {
	zone *Zone
	// seen has the records of RRsets with more than few records, to find duplicates.
	seen map[seenRecord]struct{}
}

// A seenRecord identifies a record of a Builder.
type seenRecord struct {
	node  *node
	t     wire.Type
	rdata string
}

// NewBuilder returns a Builder for the zone origin.
func NewBuilder(origin wire.Name) *Builder {
	z := &Zone{origin: origin, apex: []byte(origin), nodes: map[string]*node{}, nsec3Nodes: map[string]*node{}, deepest: origin.Labels()}
	z.nodes[string(origin)] = &node{name: []byte(origin)}
	return &Builder{zone: z, seen: map[seenRecord]struct{}{}}
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
	name := wire.Lower(owner)
	z := b.zone
	if !name.Within(z.origin) {
		return fmt.Errorf("%s: %w %s", name, ErrOutOfZone, z.origin)
	}
	covered := t
	switch {
	case t == wire.TypeNSEC3 || t == wire.TypeNSEC3PARAM:
		if _, err := parseNSEC3(t, rdata); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	case t == wire.TypeSOA && name != z.origin:
		return fmt.Errorf("%s: SOA record below the zone's name %s", name, z.origin)
	case t == wire.TypeRRSIG:
		if len(rdata) < 19 {
			return fmt.Errorf("%s: malformed RRSIG record", name)
		}
		covered = wire.Type(rdata[0])<<8 | wire.Type(rdata[1])
	}
	var n *node
	var err error
	if covered == wire.TypeNSEC3 {
		if n, err = b.nsec3Node(owner); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	} else {
		n = z.nodes[string(name)]
	}
	if n != nil && t != wire.TypeRRSIG {
		if err = n.conflict(name, t, rdata); err != nil && !errors.Is(err, ErrCNAMEConflict) {
			return err
		}
	}
	if n == nil {
		n = b.addNode(owner)
	} else if len(n.sets) == 0 {
		n.name = []byte(owner)
	}
	i, ok := n.search(covered)
	if !ok {
		if len(n.sets) == maxTypes {
			return fmt.Errorf("%s: more than %d types of records", name, maxTypes)
		}
		n.sets = slices.Insert(n.sets, i, rrset{t: covered})
	}
	s := &n.sets[i]
	if t == wire.TypeRRSIG {
		s.sigs, s.nSigs = b.add(n, s.sigs, s.nSigs, t, ttl, rdata)
	} else {
		s.records, s.n = b.add(n, s.records, s.n, t, ttl, rdata)
	}
	return err
}

// maxTypes is the number of types that a name may have. BIND allows 100.
const maxTypes = 1000

// conflict returns an error if a record must not coexist with those of n (RFC 1034
// §3.6.2, RFC 2181 §10.1, RFC 6672 §2.4).
func (n *node) conflict(name wire.Name, t wire.Type, rdata string) error {
	if t == wire.TypeCNAME || t == wire.TypeDNAME || t == wire.TypeSOA {
		if s := n.get(t); s != nil && s.n > 0 && string(s.rdata()) != rdata {
			return fmt.Errorf("%s: a second %s record", name, t)
		}
	}
	if t == wire.TypeNSEC {
		return nil
	}
	if t != wire.TypeCNAME {
		if s := n.get(wire.TypeCNAME); s != nil && s.n > 0 {
			return fmt.Errorf("%s: %s record %w", name, t, ErrCNAMEConflict)
		}
		return nil
	}
	for i := range n.sets {
		if s := &n.sets[i]; s.n > 0 && s.t != wire.TypeCNAME && s.t != wire.TypeNSEC {
			return fmt.Errorf("%s: %s record %w", name, s.t, ErrCNAMEConflict)
		}
	}
	return nil
}

const (
	// maxRecords is more records of one name and type than a message can hold.
	maxRecords = wire.MaxMessage/headLen + 1
	// few records are compared one by one to find duplicates.
	few = 16
)

// add appends a record of n to those of its RRset, unless the RRset has it or has
// more records than a message can hold.
func (b *Builder) add(n *node, records []byte, count int, t wire.Type, ttl uint32, rdata string) ([]byte, int) {
	if count >= maxRecords {
		return records, count
	}
	if count <= few {
		duplicate := false
		for i := 0; i < len(records); {
			next := i + headLen + int(binary.BigEndian.Uint16(records[i+headLen-2:]))
			old := records[i+headLen : next]
			duplicate = duplicate || string(old) == rdata
			if count == few {
				b.seen[seenRecord{n, t, string(old)}] = struct{}{}
			}
			i = next
		}
		if duplicate {
			return records, count
		}
	}
	if count >= few {
		key := seenRecord{n, t, rdata}
		if _, ok := b.seen[key]; ok {
			return records, count
		}
		b.seen[key] = struct{}{}
	}
	records = wire.AppendRecordHeader(records, wire.OwnerIsQuestion, t, ttl, len(rdata))
	return append(records, rdata...), count + 1
}

// addNode returns the node of a name. It adds the node and its ancestors if they
// do not exist.
func (b *Builder) addNode(spelled string) *node {
	key := string(wire.Lower(spelled))
	if n := b.zone.nodes[key]; n != nil {
		return n
	}
	parent := b.addNode(spelled[1+spelled[0]:])
	n := &node{name: []byte(spelled), parent: parent}
	if isWildcard(n.name) {
		parent.wildcard = n
	}
	b.zone.nodes[key] = n
	b.zone.deepest = max(b.zone.deepest, countLabels(n.name))
	return n
}

// Zone returns the zone with all records that were added. The Builder must not be
// used afterwards.
func (b *Builder) Zone() *Zone {
	z := b.zone
	b.zone, b.seen = nil, nil
	for _, n := range z.nodes {
		n.sets = slices.DeleteFunc(n.sets, func(s rrset) bool { return s.n == 0 })
		for i := range n.sets {
			n.sets[i].unifyTTL()
		}
		n.isDelegation = n.parent != nil && !isWildcard(n.name) && n.get(wire.TypeNS) != nil
		n.hasDNAME = n.get(wire.TypeDNAME) != nil
	}
	for _, n := range z.nodes {
		n.setHiddenBy()
	}
	for _, n := range z.nodes {
		for i := range n.sets {
			z.linkTargets(&n.sets[i])
		}
	}
	if soa := z.nodes[string(z.origin)].get(wire.TypeSOA); soa != nil {
		z.setNegative(soa)
	}
	z.sortNSEC()
	z.setNSEC3()
	return z
}

// unifyTTL sets the TTL of all records to the smallest among them (RFC 2181
// §5.2).
func (s *rrset) unifyTTL() {
	s.records, s.sigs = slices.Clip(s.records), slices.Clip(s.sigs)
	least := s.ttl()
	eachRecord(s.records, func(r wire.Record) { least = min(least, r.TTL(s.records)) })
	eachRecord(s.records, func(r wire.Record) { r.SetTTL(s.records, least) })
}

func eachRecord(records []byte, f func(wire.Record)) {
	for off := 0; off < len(records); {
		r, ok := wire.ReadRecord(records, off)
		if !ok {
			return
		}
		f(r)
		off = r.Next
	}
}

// setHiddenBy sets n.hiddenBy.
func (n *node) setHiddenBy() {
	if n.isDelegation {
		n.hiddenBy = n
	}
	for p := n.parent; p != nil; p = p.parent {
		if p.isDelegation || p.hasDNAME {
			n.hiddenBy = p
		}
	}
}

// linkTargets sets s.targets: the nodes whose addresses go into the additional
// section beside s (RFC 1035 §3.3, RFC 2782, RFC 9460 §4.1). Names that a
// delegation hides are glue, and only NS records have them as targets.
func (z *Zone) linkTargets(s *rrset) {
	before := 0 // bytes of RDATA before the name
	switch s.t {
	case wire.TypeNS:
	case wire.TypeMX, wire.TypeSVCB, wire.TypeHTTPS:
		before = 2
	case wire.TypeSRV:
		before = 6
	default:
		return
	}
	linked := map[*node]struct{}{}
	eachRecord(s.records, func(r wire.Record) {
		rdata := s.records[r.RData:r.Next]
		if len(rdata) <= before {
			return
		}
		name := rdata[before:]
		end := 0
		for end < len(name) && name[end] != 0 {
			end += int(name[end]) + 1
		}
		if end >= len(name) {
			return
		}
		n := z.nodes[string(wire.Lower(string(name[:end+1])))]
		if n == nil || n.hiddenBy != nil && s.t != wire.TypeNS {
			return
		}
		if _, ok := linked[n]; !ok && (n.get(wire.TypeA) != nil || n.get(wire.TypeAAAA) != nil) {
			linked[n] = struct{}{}
			s.targets = append(s.targets, n)
		}
	})
}

// setNegative sets the serial number, and the SOA record of negative answers,
// whose TTL is at most the record's MINIMUM field (RFC 2308 §5).
func (z *Zone) setNegative(soa *rrset) {
	const numbers = 20 // bytes of the five numbers at the end of the RDATA
	rdata := soa.rdata()
	if len(rdata) < numbers {
		return
	}
	rdata = rdata[len(rdata)-numbers:]
	z.serial = binary.BigEndian.Uint32(rdata)
	least := min(soa.ttl(), binary.BigEndian.Uint32(rdata[16:]))
	z.negative = &rrset{t: wire.TypeSOA, n: soa.n, records: slices.Clone(soa.records), nSigs: soa.nSigs, sigs: slices.Clone(soa.sigs)}
	eachRecord(z.negative.records, func(r wire.Record) { r.SetTTL(z.negative.records, least) })
	eachRecord(z.negative.sigs, func(r wire.Record) { r.SetTTL(z.negative.sigs, min(least, r.TTL(z.negative.sigs))) })
}
