package zone

import (
	"slices"

	"github.com/seamark/seamark/wire"
)

// A Zone is one authoritative zone, which never changes: a Builder makes it,
// and an atomic pointer to it is how a newer one takes its place. Lookup may be
// called from any goroutine, takes no lock, and allocates nothing as long as
// the answer fits into the memory that it has.
type Zone struct {
	origin   wire.Name
	apex     []byte           // the same
	nodes    map[string]*node // by name in wire form, lower case
	deepest  int              // labels of the longest name
	negative *set             // the SOA with the TTL of negative answers (RFC 2308 §5); nil if there is none
	serial   uint32
	chain    []link // the NSEC records in canonical order; none if the zone is not signed
}

// A node is a name that exists: it has records, or a name below it has (RFC
// 4592 §2.2.2).
type node struct {
	name   []byte // in wire form, as the zone spells it
	parent *node  // nil at the apex
	sets   []set
	wild   *node // the name "*" below it
	// stop is what hides the node: the delegation at or above it, or the DNAME
	// above it, whichever is nearest to the apex.
	stop *node
}

// A set is an RRset, and the signatures over it. Its records have the answer's
// form, with the question's name as their owner.
type set struct {
	t       wire.Type
	n       int
	records []byte
	nSigs   int
	sigs    []byte
	targets []*node // the names in the zone that its records point to, with addresses
}

// A Result is what Lookup found, beside the records.
type Result struct {
	RCode wire.RCode
	AA    bool // false for a referral
	// Missing says that the question's own name does not exist.
	Missing bool
	// Target is set if the answer ends in a CNAME whose target this zone does
	// not have: that name, in wire form. It lies in the answer's memory.
	Target []byte
}

// Origin is the zone's name.
func (z *Zone) Origin() wire.Name { return z.origin }

// Serial is that of the zone's SOA; false if it has none.
func (z *Zone) Serial() (serial uint32, ok bool) { return z.serial, z.negative != nil }

// chainLimit is how many CNAMEs in a row are followed within a zone. Whoever
// asks for the target may go on from there.
const chainLimit = 8

// Lookup writes the answer to r, whose name is in the zone, into a, by RFC 1034
// §4.3.2 as RFC 2308, 4035 §3.1, 4592 and 6672 have changed it. There must be
// nothing in a. Questions for transfers are not for it.
func (z *Zone) Lookup(r *wire.Request, a *wire.Answer) Result {
	l := lookup{Zone: z, a: a, t: r.Type, do: r.DO, Result: Result{AA: true}}
	var made, low [wire.MaxName]byte
	name, spelled := r.Name(), a.Buf[wire.HeaderLen:wire.HeaderLen+len(r.Name())]
	for n := 1; ; n++ {
		target, more := l.step(name, spelled, made[:])
		if !more {
			break
		}
		l.aliased = true
		spelled, name = target, wire.AppendLower(low[:0], target)
		if l.repeats(spelled) {
			break
		}
		if n == chainLimit || !wire.Within(name, z.origin) {
			l.outside()
			break
		}
	}
	l.finish()
	return l.Result
}

// A lookup is one Lookup under way. What belongs behind the answer section is
// remembered, and written by finish.
type lookup struct {
	*Zone
	a  *wire.Answer
	t  wire.Type
	do bool
	Result

	aliased  bool              // the answer begins with a CNAME
	moved    [chainLimit]*node // whose DNAME records are in the answer
	nMoved   int
	negative bool
	referral *node
	extra    *set             // its targets' addresses go into the additional section
	proofs   [maxProofs]*node // whose NSEC records go into the authority section
	nProofs  int
}

// maxProofs is enough for a wildcard in each step of a chain of CNAMEs, and for
// a negative answer at its end.
const maxProofs = chainLimit + 3

// step answers for one name: the question's, or the target of a CNAME. made is
// memory for a name. If the answer is a CNAME that is to be followed it gives
// its target.
func (l *lookup) step(name, spelled, made []byte) (target []byte, more bool) {
	n, exact := l.find(name)
	stop := n.stop
	if stop == nil && !exact && n.get(wire.TypeDNAME) != nil {
		stop = n
	}
	switch {
	case stop != nil && stop.cut() && !(exact && n == stop && l.t == wire.TypeDS):
		if l.aliased {
			l.outside() // whoever serves it may be among us
		} else {
			l.AA, l.referral = false, stop
		}
		return nil, false
	case stop != nil && !stop.cut():
		return l.redirect(stop, name, spelled, made)
	case exact:
		return l.answer(n, name, spelled, true)
	case n.wild != nil:
		return l.answer(n.wild, name, spelled, false)
	}
	l.Missing = !l.aliased
	l.RCode, l.negative = wire.NXDomain, true
	l.cover(name)
	l.coverWildcard(n)
	return nil, false
}

// find gives the node of name, or else its closest encloser (RFC 4592 §3.3.1).
func (z *Zone) find(name []byte) (n *node, exact bool) {
	off := 0
	for skip := labels(name) - z.deepest; skip > 0; skip-- {
		off += int(name[off]) + 1
	}
	for {
		if n := z.nodes[string(name[off:])]; n != nil {
			return n, off == 0
		}
		off += int(name[off]) + 1
	}
}

// answer writes what the node n, which is name itself or the wildcard that
// stands for it, has for the question.
func (l *lookup) answer(n *node, name, spelled []byte, exact bool) (target []byte, more bool) {
	if !exact {
		l.cover(name) // there is no closer match
	}
	switch l.t {
	case wire.TypeANY, wire.TypeRRSIG:
		for i := range n.sets {
			s := &n.sets[i]
			if l.t == wire.TypeANY {
				l.put(wire.Answers, spelled, s)
			}
			l.copy(wire.Answers, spelled, s.sigs, s.nSigs)
		}
		if l.answered(n) {
			return nil, false
		}
	default:
		if s := n.get(l.t); s != nil {
			l.putSet(wire.Answers, spelled, s)
			l.extra = s
			return nil, false
		}
		if s := n.get(wire.TypeCNAME); s != nil {
			l.putSet(wire.Answers, spelled, s)
			return s.rdata(), true
		}
	}
	l.negative = true
	if n.get(wire.TypeNSEC) != nil {
		l.prove(n)
	} else if exact {
		l.cover(name)
	}
	return nil, false
}

// answered says whether n had anything for a question for ANY or RRSIG.
func (l *lookup) answered(n *node) bool {
	for i := range n.sets {
		if l.t == wire.TypeANY || n.sets[i].nSigs > 0 {
			return true
		}
	}
	return false
}

// redirect answers for a name below a DNAME (RFC 6672 §3.2): the DNAME, and a
// CNAME made of it.
func (l *lookup) redirect(n *node, name, spelled, made []byte) (target []byte, more bool) {
	s := n.get(wire.TypeDNAME)
	if !slices.Contains(l.moved[:l.nMoved], n) { // or it is in the answer
		l.moved[l.nMoved] = n
		l.nMoved++
		l.putSet(wire.Answers, n.name, s)
	}
	prefix := len(name) - len(n.name)
	to := s.rdata()
	if prefix+len(to) > wire.MaxName {
		l.RCode = wire.YXDomain
		return nil, false
	}
	var owner [wire.MaxName]byte
	at := append(owner[:0], spelled...) // which may lie in made
	copy(made, spelled[:prefix])
	target = made[:prefix+copy(made[prefix:], to)]
	l.a.Buf = l.a.AppendOwner(l.a.Buf, at)
	l.a.Buf = wire.AppendRecordHeader(l.a.Buf, "", wire.TypeCNAME, s.ttl(), len(target))
	l.a.Append(wire.Answers, target, 1)
	return target, l.t != wire.TypeCNAME && l.t != wire.TypeANY
}

// repeats says whether the target of a CNAME is a name that the chain has come
// by: then it is written as far as it goes, and not followed.
func (l *lookup) repeats(target []byte) bool {
	a := l.a
	if question := a.Buf[wire.HeaderLen : a.RecordsOffset()-4]; wire.SameName(question, target) {
		return true
	}
	times := 0
	for off := a.RecordsOffset(); off < len(a.Buf); {
		r, ok := wire.ReadRecord(a.Buf, off)
		if !ok {
			break
		}
		if r.Type == wire.TypeCNAME && wire.SameName(a.Buf[r.RData:r.Next], target) {
			times++
		}
		off = r.Next
	}
	return times > 1
}

// outside says that the last CNAME's target is not ours to answer.
func (l *lookup) outside() {
	a := l.a
	for off := a.RecordsOffset(); off < len(a.Buf); {
		r, _ := wire.ReadRecord(a.Buf, off)
		if r.Type == wire.TypeCNAME {
			l.Target = a.Buf[r.RData:r.Next]
		}
		off = r.Next
	}
}

// get gives the node's RRset of a type; nil if it has none.
func (n *node) get(t wire.Type) *set {
	for i := range n.sets {
		if n.sets[i].t == t {
			return &n.sets[i]
		}
	}
	return nil
}

// cut says whether the node is a delegation. What NS records at a wildcard mean
// is nowhere said (RFC 4592 §4.2): here they are records like others.
func (n *node) cut() bool {
	return n.parent != nil && !wildcard(n.name) && n.get(wire.TypeNS) != nil
}
