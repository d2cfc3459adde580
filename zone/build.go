package zone

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/seamark/seamark/wire"
)

// A Builder gathers the records of one zone.
type Builder struct {
	zone *Zone
}

// NewBuilder begins a zone of that name.
func NewBuilder(origin wire.Name) *Builder {
	z := &Zone{origin: origin, apex: []byte(origin), nodes: map[string]*node{}, deepest: origin.Labels()}
	z.nodes[string(origin)] = &node{name: []byte(origin)}
	return &Builder{z}
}

// Errors of Add that need not be the end of a zone.
var (
	// ErrOutOfZone is for a record whose owner is not in the zone.
	ErrOutOfZone = errors.New("out of zone")
	// ErrCNAMEConflict is for a record that is added all the same, though there must
	// not be a CNAME and others of one name (RFC 1034 §3.6.2): a resolver that
	// has seen the CNAME may ask for none of the others.
	ErrCNAMEConflict = errors.New("beside a CNAME")
)

// Add adds a record of class IN. owner is in wire form, and its spelling is
// kept; rdata is in wire form with names written out. A record that is there
// already is left out. Errors are about this record beside those before it;
// unless it is ErrCNAMEConflict the zone is as if it had not been added.
func (b *Builder) Add(owner string, t wire.Type, ttl uint32, rdata string) error {
	name := wire.Lower(owner)
	z := b.zone
	if !name.Within(z.origin) {
		return fmt.Errorf("%s: %w %s", name, ErrOutOfZone, z.origin)
	}
	covered := t
	switch {
	case t == wire.TypeNSEC3 || t == wire.TypeNSEC3PARAM:
		return fmt.Errorf("%s: %s: NSEC3 is not supported, sign the zone with NSEC", name, t)
	case t == wire.TypeSOA && name != z.origin:
		return fmt.Errorf("%s: SOA record below the zone's name %s", name, z.origin)
	case t == wire.TypeRRSIG:
		if len(rdata) < 19 {
			return fmt.Errorf("%s: malformed RRSIG record", name)
		}
		covered = wire.Type(rdata[0])<<8 | wire.Type(rdata[1])
	}
	n := z.nodes[string(name)]
	var err error
	if n != nil && t != wire.TypeRRSIG {
		if err = n.beside(name, t, rdata); err != nil && !errors.Is(err, ErrCNAMEConflict) {
			return err
		}
	}
	if n == nil {
		n = b.node(owner)
	} else if len(n.sets) == 0 {
		n.name = []byte(owner)
	}
	s := n.get(covered)
	if s == nil {
		n.sets = append(n.sets, set{t: covered})
		s = &n.sets[len(n.sets)-1]
	}
	if t == wire.TypeRRSIG {
		s.sigs, s.nSigs = add(s.sigs, s.nSigs, t, ttl, rdata)
	} else {
		s.records, s.n = add(s.records, s.n, t, ttl, rdata)
	}
	return err
}

// beside says whether a record can be added to what n has (RFC 1034 §3.6.2,
// RFC 2181 §10.1, RFC 6672 §2.4).
func (n *node) beside(name wire.Name, t wire.Type, rdata string) (err error) {
	for i := range n.sets {
		s := &n.sets[i]
		if s.n == 0 || t == wire.TypeNSEC || s.t == wire.TypeNSEC {
			continue
		}
		switch one := t == wire.TypeCNAME || t == wire.TypeDNAME || t == wire.TypeSOA; {
		case s.t == t && one && string(s.rdata()) != rdata:
			return fmt.Errorf("%s: a second %s record", name, t)
		case s.t == t:
			continue
		case t == wire.TypeCNAME:
			err = fmt.Errorf("%s: %s record %w", name, s.t, ErrCNAMEConflict)
		case s.t == wire.TypeCNAME:
			err = fmt.Errorf("%s: %s record %w", name, t, ErrCNAMEConflict)
		}
	}
	return err
}

// maxSet is more records of one name and type than a message can hold, however
// small they are. Each is compared with the others and copied with each answer.
const maxSet = wire.MaxMessage/head + 1

// add writes a record behind those of its set, unless that has more than can be
// answered with anyway.
func add(records []byte, n int, t wire.Type, ttl uint32, rdata string) ([]byte, int) {
	if n >= maxSet {
		return records, n
	}
	for i := 0; i < len(records); {
		next := i + head + int(binary.BigEndian.Uint16(records[i+head-2:]))
		if string(records[i+head:next]) == rdata {
			return records, n
		}
		i = next
	}
	records = wire.AppendRecordHeader(records, wire.OwnerIsQuestion, t, ttl, len(rdata))
	return append(records, rdata...), n + 1
}

// node makes a name exist, and those above it.
func (b *Builder) node(spelled string) *node {
	key := string(wire.Lower(spelled))
	if n := b.zone.nodes[key]; n != nil {
		return n
	}
	parent := b.node(spelled[1+spelled[0]:])
	n := &node{name: []byte(spelled), parent: parent}
	if wildcard(n.name) {
		parent.wild = n
	}
	b.zone.nodes[key] = n
	b.zone.deepest = max(b.zone.deepest, labels(n.name))
	return n
}

// Zone is the zone of all that has been added. The builder is done with.
func (b *Builder) Zone() *Zone {
	z := b.zone
	b.zone = nil
	for _, n := range z.nodes {
		n.sets = slices.DeleteFunc(n.sets, func(s set) bool { return s.n == 0 })
		for i := range n.sets {
			n.sets[i].settle()
		}
	}
	for _, n := range z.nodes {
		n.stop = n.hidden()
	}
	for _, n := range z.nodes {
		for i := range n.sets {
			z.point(&n.sets[i])
		}
	}
	if soa := z.nodes[string(z.origin)].get(wire.TypeSOA); soa != nil {
		z.authority(soa)
	}
	z.link()
	return z
}

// settle gives all records of a set the least TTL among them: they must have
// one in common (RFC 2181 §5.2).
func (s *set) settle() {
	s.records, s.sigs = slices.Clip(s.records), slices.Clip(s.sigs)
	least := s.ttl()
	each(s.records, func(r wire.Record) { least = min(least, r.TTL(s.records)) })
	each(s.records, func(r wire.Record) { r.SetTTL(s.records, least) })
}

func each(records []byte, f func(wire.Record)) {
	for off := 0; off < len(records); {
		r, ok := wire.ReadRecord(records, off)
		if !ok {
			return
		}
		f(r)
		off = r.Next
	}
}

// hidden gives the delegation or the DNAME that hides n.
func (n *node) hidden() (stop *node) {
	if n.cut() {
		stop = n
	}
	for p := n.parent; p != nil; p = p.parent {
		if p.cut() || p.get(wire.TypeDNAME) != nil {
			stop = p
		}
	}
	return stop
}

// point finds the names whose addresses go with the records of s (RFC 1035
// §3.3, RFC 2782, RFC 9460 §4.1). Those that a delegation hides go with
// delegations alone: they are glue.
func (z *Zone) point(s *set) {
	before := 0
	switch s.t {
	case wire.TypeNS:
	case wire.TypeMX, wire.TypeSVCB, wire.TypeHTTPS:
		before = 2
	case wire.TypeSRV:
		before = 6
	default:
		return
	}
	each(s.records, func(r wire.Record) {
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
		if n == nil || n.stop != nil && s.t != wire.TypeNS || slices.Contains(s.targets, n) {
			return
		}
		if n.get(wire.TypeA) != nil || n.get(wire.TypeAAAA) != nil {
			s.targets = append(s.targets, n)
		}
	})
}

// authority takes from the SOA what negative answers need.
func (z *Zone) authority(soa *set) {
	const numbers = 20
	rdata := soa.rdata()
	if len(rdata) < numbers {
		return
	}
	rdata = rdata[len(rdata)-numbers:]
	z.serial = binary.BigEndian.Uint32(rdata)
	least := min(soa.ttl(), binary.BigEndian.Uint32(rdata[16:]))
	z.negative = &set{t: wire.TypeSOA, n: soa.n, records: slices.Clone(soa.records), nSigs: soa.nSigs, sigs: slices.Clone(soa.sigs)}
	each(z.negative.records, func(r wire.Record) { r.SetTTL(z.negative.records, least) })
	each(z.negative.sigs, func(r wire.Record) { r.SetTTL(z.negative.sigs, min(least, r.TTL(z.negative.sigs))) })
}
