package zone

import (
	"slices"

	"github.com/seamark/seamark/wire"
)

// A Result is what Lookup found besides the records.
type Result struct {
	RCode wire.RCode
	AA    bool // false for a referral
	// Missing reports that the query name does not exist.
	Missing bool
	// AtCut reports that the query is for DS records of a delegation, which the answer
	// has, or denies.
	AtCut bool
	// Target is set if the answer ends in a CNAME record whose target Lookup did
	// not follow: the target in wire form, in the answer's memory.
	Target []byte
}

// A Scope describes the server that a Lookup answers for. With the zero Scope the
// server has no other zones, and answers have no limit.
type Scope struct {
	Server Server                 // nil for none
	Zones  map[wire.Name]struct{} // the zones that the caller serves
}

// A Server is a server with other zones; *dns.Query implements it. Its methods must
// not retain their arguments.
type Server interface {
	// ExceedsLimit reports whether the answer has more records than fit into the
	// reply. Lookup then adds no more.
	ExceedsLimit() bool
	// HasLongerZone reports whether the server has a zone that contains target and is
	// longer than origin, which contains target too.
	HasLongerZone(origin wire.Name, target []byte) bool
}

// maxChain is the number of CNAME records that one Lookup follows. The caller may
// go on from Result.Target.
const maxChain = 8

// Lookup writes the answer to r, whose name must be in the zone, to a, which must
// be empty. It follows RFC 1034 §4.3.2 with RFC 2308, 4035 §3.1, 4592 and 6672. A
// loop of CNAME records is SERVFAIL with the chain as the answer. Lookup does not
// handle zone transfers.
func (z *Zone) Lookup(r *wire.Request, a *wire.Answer, scope Scope) Result {
	l := lookup{Zone: z, Scope: scope, a: a, t: r.Type, do: r.DO, Result: Result{AA: true}}
	var made, low [wire.MaxName]byte
	name, spelled := r.Name(), a.Buf[wire.HeaderLen:wire.HeaderLen+len(r.Name())]
	n, exact := z.find(name)
	for length := 1; ; length++ {
		target, more := l.step(n, exact, name, spelled, made[:])
		if !more {
			break
		}
		l.aliased = true
		spelled, name = target, wire.AppendLower(low[:0], target)
		if l.loops(spelled) {
			l.RCode = wire.ServFail
			break
		}
		if length == maxChain || !wire.Within(name, z.origin) {
			l.Target = l.lastTarget()
			break
		}
		n, exact = z.find(name)
		if l.leavesZone(name, exact || z.stop(n, exact) != nil) {
			l.Target = l.lastTarget()
			break
		}
	}
	l.finish()
	return l.Result
}

// leavesZone reports whether the caller must resolve the last CNAME record's target,
// which is name in lower case, although it is in the zone: because the zone does not
// have the name itself, so that another directive may have it, or because another
// zone is closer to it (RFC 1034 §4.3.2, step 2).
func (l *lookup) leavesZone(name []byte, exists bool) bool {
	if l.Server == nil {
		return false
	}
	if !exists || l.Server.HasLongerZone(l.origin, l.lastTarget()) {
		return true
	}
	for ; len(name) > len(l.origin); name = name[1+name[0]:] {
		if _, ok := l.Zones[wire.Name(name)]; ok {
			return true
		}
	}
	return false
}

// A lookup is the state of one Lookup. It writes the answer section at once and
// collects what finish writes to the other sections.
type lookup struct {
	*Zone
	Scope
	a  *wire.Answer
	t  wire.Type
	do bool
	Result

	aliased  bool            // the answer begins with a CNAME record
	dnames   [maxChain]*node // the nodes whose DNAME records are in the answer
	nDNAMEs  int
	negative bool
	referral *node
	answered set              // the RRset whose targets' addresses go into the additional section
	proofs   [maxProofs]*node // the nodes whose NSEC or NSEC3 records go into the authority section
	nProofs  int
}

// maxProofs is enough for a wildcard in each step of a CNAME chain and a negative
// answer at its end.
const maxProofs = maxChain + 3

// step answers for one name: the query name, or the target of a CNAME record. n
// and exact are the result of find(name), spelled is name in the client's or the
// zone's spelling, and made is memory for a name. If the answer is a CNAME record
// that must be followed, step returns its target and more is true.
func (l *lookup) step(n *node, exact bool, name, spelled, made []byte) (target []byte, more bool) {
	stop := l.stop(n, exact)
	switch {
	case stop != nil && stop.is(isDelegation) && !(exact && n == stop && l.t == wire.TypeDS):
		if l.aliased {
			l.Target = l.lastTarget() // this server may have the delegated zone
		} else {
			l.AA, l.referral = false, stop
		}
		return nil, false
	case stop != nil && !stop.is(isDelegation):
		return l.redirect(stop, name, spelled, made)
	case exact:
		l.AtCut = n.is(isDelegation) && !l.aliased
		return l.answer(n, name, spelled, made, true)
	}
	if wildcard := l.wildcard(n); wildcard != nil {
		l.proveNoCloser(n, name)
		return l.answer(wildcard, name, spelled, made, false)
	}
	l.Missing = !l.aliased
	l.RCode, l.negative = wire.NXDomain, true
	l.proveNoName(n, name)
	return nil, false
}

// stop returns the node whose delegation or DNAME record applies to a name with
// the closest encloser n, or nil.
func (z *Zone) stop(n *node, exact bool) *node {
	if n.meta&isHidden != 0 || n.is(isDelegation) {
		return z.hiddenBy(n)
	}
	if !exact && n.is(hasDNAME) {
		return n
	}
	return nil
}

// answer writes the records of n that match the query type. n is the node of name
// if exact, or else the wildcard that applies to it. made is memory for a name.
func (l *lookup) answer(n *node, name, spelled, made []byte, exact bool) (target []byte, more bool) {
	switch l.t {
	case wire.TypeANY, wire.TypeRRSIG:
		found := false
		for rest := n.sets(); rest != ""; {
			var s set
			rest = s.read(n, rest)
			if l.t == wire.TypeANY {
				l.put(wire.Answers, spelled, &s)
			}
			l.putSigs(wire.Answers, spelled, &s)
			found = found || l.t == wire.TypeANY || s.sigCount > 0
		}
		if found {
			return nil, false
		}
	default:
		if s := n.get(l.t); s.count > 0 {
			l.putSigned(wire.Answers, spelled, &s)
			l.answered = s
			return nil, false
		}
		if s := n.get(wire.TypeCNAME); s.count > 0 {
			l.putSigned(wire.Answers, spelled, &s)
			r, _ := nextRecord(s.records)
			return l.appendRData(made[:0], n, r), true
		}
	}
	l.negative = true
	l.proveNoType(n, name, exact)
	return nil, false
}

// redirect answers for a name below a DNAME record (RFC 6672 §3.2): the DNAME
// record, and the CNAME record synthesized from it.
func (l *lookup) redirect(n *node, name, spelled, made []byte) (target []byte, more bool) {
	s := n.get(wire.TypeDNAME)
	if !slices.Contains(l.dnames[:l.nDNAMEs], n) {
		l.dnames[l.nDNAMEs] = n
		l.nDNAMEs++
		var room [wire.MaxName]byte
		l.putSigned(wire.Answers, l.appendName(room[:0], n), &s)
	}
	prefix := len(name) - l.nameLen(n)
	suffix, _ := nextRecord(s.records)
	if prefix+suffix.len() > wire.MaxName {
		l.RCode = wire.YXDomain
		return nil, false
	}
	var owner [wire.MaxName]byte
	at := append(owner[:0], spelled...) // a copy, because spelled may lie in made
	copy(made, spelled[:prefix])
	target = l.appendRData(made[:prefix], n, suffix)
	l.a.Buf = l.a.AppendOwner(l.a.Buf, at)
	l.a.Buf = wire.AppendRecordHeader(l.a.Buf, "", wire.TypeCNAME, s.ttl, len(target))
	l.a.Append(wire.Answers, target, 1)
	return target, l.t != wire.TypeCNAME && l.t != wire.TypeANY
}

// loops reports whether target, of the last CNAME record, is the query name or
// the target of an earlier CNAME record.
func (l *lookup) loops(target []byte) bool {
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

// lastTarget returns the target of the last CNAME record in the answer, which
// must have one.
func (l *lookup) lastTarget() (target []byte) {
	a := l.a
	for off := a.RecordsOffset(); off < len(a.Buf); {
		r, ok := wire.ReadRecord(a.Buf, off)
		if !ok {
			break
		}
		if r.Type == wire.TypeCNAME {
			target = a.Buf[r.RData:r.Next]
		}
		off = r.Next
	}
	return target
}
