package zone

import (
	"slices"

	"github.com/seamark/seamark/wire"
)

// A Result describes the answer of Lookup, without its records.
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
	Server Server // nil for none
	Zones  Zones  // those that the caller serves; nil for none
}

// A Server is a server with other zones; *dns.Query implements it. Its methods must
// not retain their arguments.
type Server interface {
	// ExceedsLimit reports whether the answer has more records than fit into the
	// reply. Lookup then adds no more.
	ExceedsLimit() bool
	Zones
}

// Zones are a set of zones, such as a [wire.ZoneMap].
type Zones interface {
	// HasLongerZone reports whether one of them contains target and is longer than origin,
	// which contains target too.
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
	name := r.Name()
	spelled := a.Buf[wire.HeaderLen : wire.HeaderLen+len(name)]

	n, exact := z.find(name)
	if target, more := l.step(n, exact, name, spelled); more {
		l.follow(target)
	}
	l.finish()
	return l.Result
}

// follow answers for the target of the CNAME record that the answer begins with, and for
// the targets of the CNAME records that this adds.
func (l *lookup) follow(target []byte) {
	var low [wire.MaxName]byte
	l.aliased = true
	for length, more := 1, true; more; length++ {
		if l.loops(target, length) {
			l.RCode = wire.ServFail
			return
		}

		name := wire.AppendLower(low[:0], target)
		if length == maxChain || !wire.Within(name, l.origin) {
			l.Target = target
			return
		}

		n, exact := l.find(name)
		if l.leavesZone(target, exact || l.stop(n, exact) != nil) {
			l.Target = target
			return
		}
		target, more = l.step(n, exact, name, target)
	}
}

// leavesZone reports whether the caller must resolve the last CNAME record's target,
// although it is in the zone: because the zone does not have the name itself, so that
// another directive may have it, or because another zone is closer to it (RFC 1034
// §4.3.2, step 2).
func (l *lookup) leavesZone(target []byte, exists bool) bool {
	if l.Server == nil {
		return false
	}
	return !exists || l.Server.HasLongerZone(l.origin, target) ||
		l.Zones != nil && l.Zones.HasLongerZone(l.origin, target)
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
	written  writer           // of answered
	proofs   [maxProofs]*node // the nodes whose NSEC or NSEC3 records go into the authority section
	nProofs  int
}

// maxProofs is enough for a wildcard in each step of a CNAME chain and a negative
// answer at its end.
const maxProofs = maxChain + 3

// step answers for one name: the query name, or the target of a CNAME record. n
// and exact are the result of find(name), and spelled is name in the client's or the
// zone's spelling. If the answer is a CNAME record that must be followed, step returns
// its target, in the answer's memory, and more is true.
func (l *lookup) step(n *node, exact bool, name, spelled []byte) (target []byte, more bool) {
	stop := l.stop(n, exact)
	switch {
	case stop != nil && stop.is(isDelegation) && !(exact && n == stop && l.t == wire.TypeDS):
		if l.aliased {
			l.Target = spelled // this server may have the delegated zone
		} else {
			l.AA, l.referral = false, stop
		}
		return nil, false
	case stop != nil && !stop.is(isDelegation):
		return l.redirect(stop, name, spelled)
	case exact:
		l.AtCut = n.is(isDelegation) && !l.aliased
		return l.answer(n, name, spelled, true)
	}

	// The wildcard of the closest encloser is the source of synthesis (RFC 4592 §3.3.1).
	if wildcard := l.names.wildcard(n); wildcard != nil {
		l.proveNoCloser(n, name)
		return l.answer(wildcard, name, spelled, false)
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
// if exact, or else the wildcard that applies to it.
func (l *lookup) answer(n *node, name, spelled []byte, exact bool) (target []byte, more bool) {
	switch l.t {
	case wire.TypeANY, wire.TypeRRSIG:
		if l.putAll(n, spelled) {
			return nil, false
		}
	default:
		if l.answered.get(n, l.t) {
			l.written = l.putSigned(wire.Answers, spelled, &l.answered)
			return nil, false
		}
		var s set
		if n.is(hasCNAME) && s.get(n, wire.TypeCNAME) {
			r, _ := nextRecord(s.records)
			if l.full() {
				return l.appendRData(nil, n, r), true
			}
			l.put(wire.Answers, spelled, &s)
			target := l.a.Buf[len(l.a.Buf)-r.len():]
			if l.do {
				l.putSigs(wire.Answers, spelled, &s)
			}
			return target, true
		}
	}

	l.negative = true
	l.proveNoType(n, name, exact)
	return nil, false
}

// putAll writes the records of all types and their signatures for ANY, and the signatures alone
// for RRSIG. It reports whether there are any.
func (l *lookup) putAll(n *node, spelled []byte) (found bool) {
	for rest := n.sets(); rest != ""; {
		var s set
		rest = s.read(n, rest)
		if l.t == wire.TypeANY {
			l.put(wire.Answers, spelled, &s)
		}
		l.putSigs(wire.Answers, spelled, &s)
		found = found || l.t == wire.TypeANY || s.sigCount > 0
	}
	return found
}

// redirect answers for a name below a DNAME record (RFC 6672 §3.2): the DNAME
// record, and the CNAME record synthesized from it.
func (l *lookup) redirect(n *node, name, spelled []byte) (target []byte, more bool) {
	var s set
	s.get(n, wire.TypeDNAME)
	if !slices.Contains(l.dnames[:l.nDNAMEs], n) {
		l.dnames[l.nDNAMEs] = n
		l.nDNAMEs++
		l.putSigned(wire.Answers, nil, &s)
	}

	prefix := len(name) - l.nameLen(n)
	suffix, _ := nextRecord(s.records)
	size := prefix + suffix.len()
	if size > wire.MaxName {
		l.RCode = wire.YXDomain // RFC 6672 §2.2
		return nil, false
	}

	buf := l.a.AppendOwner(l.a.Buf, spelled)
	buf = wire.AppendRecordHeader(buf, "", wire.TypeCNAME, s.ttl, size)
	buf = append(buf, spelled[:prefix]...)
	l.a.Buf = l.appendRData(buf, n, suffix)
	l.a.Append(wire.Answers, nil, 1)
	return l.a.Buf[len(l.a.Buf)-size:], l.t != wire.TypeCNAME && l.t != wire.TypeANY
}

// loops reports whether target, of the last of count CNAME records, is the query name or
// the target of an earlier one.
func (l *lookup) loops(target []byte, count int) bool {
	a := l.a
	if question := a.Buf[wire.HeaderLen : a.RecordsOffset()-4]; wire.SameName(question, target) {
		return true
	}

	if count == 1 {
		return false
	}

	times := 0 // the last record has the target, too
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
