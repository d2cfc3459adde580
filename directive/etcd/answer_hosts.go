package etcd

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A typeSet is a set of the record types that end a chain of CNAME records.
type typeSet uint8

const (
	setA typeSet = 1 << iota
	setAAAA
	setTXT
)

func typeSetOf(t wire.Type) typeSet {
	switch t {
	case wire.TypeA:
		return setA
	case wire.TypeAAAA:
		return setAAAA
	case wire.TypeTXT:
		return setTXT
	}
	return 0
}

// has reports whether m has data of one of the types.
func (ts typeSet) has(m *message) bool {
	return ts&setA != 0 && m.addr.Is4() || ts&setAAAA != 0 && m.addr.Is6() || ts&setTXT != 0 && m.text != ""
}

// isAlias reports whether m's host is a name to follow for records of these types.
// SkyDNS does not follow names for TXT.
func (l *lookup) isAlias(m *message, types typeSet) bool {
	return m.name != "" && (types&setTXT == 0 || m.text == "" && !l.skydns)
}

// writeName writes the records of a name and of its CNAME targets, and reports
// whether it wrote any. owner is the owner name as it is written in the answer,
// and steps the number of CNAME records before it.
func (l *lookup) writeName(r keyRange, owner, name []byte, types typeSet, steps int) (found bool) {
	l.selectGroup(&r, types)
	found, names := l.writeDirect(r, owner, types)
	if names > 1 || names > 0 && found {
		l.branched = true
	}
	if names > 0 && l.writeAliases(r, owner, name, types, steps) {
		found = true
	}
	return found
}

// selectGroup restricts r to the messages of one group, if its keys have groups.
func (l *lookup) selectGroup(r *keyRange, types typeSet) {
	if r.hasGroups() {
		r.chooseGroup(types&setTXT != 0)
	}
}

// writeDirect writes the records of the messages themselves. It reports whether
// there are any, and returns the number of aliases.
func (l *lookup) writeDirect(r keyRange, owner []byte, types typeSet) (found bool, names int) {
	q, a := l.q, &l.q.Answer
	var m message
	for r.next(&m) {
		if len(a.Buf) > q.SizeLimit() && (l.section == wire.Answers || q.ExceedsLimit()) {
			return true, 0 // the answer will be truncated
		}
		if l.isAlias(&m, types) {
			names++
		}
		if !types.has(&m) {
			continue
		}
		found = true
		at := len(a.Buf)
		if types&setTXT != 0 {
			l.writeTXT(owner, m.text)
		} else {
			a.Buf = wire.AppendAddress(a.Buf, owner, 0, m.addr)
		}
		l.endRecord(at, len(owner), l.ttlOf(&m, q.Now()))
	}
	return found, names
}

// writeTXT writes a TXT record of strings of up to 255 bytes.
func (l *lookup) writeTXT(owner []byte, text string) {
	a := &l.q.Answer
	l.beginRecord(owner, wire.TypeTXT, len(text)+(len(text)+254)/255)
	for text != "" {
		n := min(len(text), 255)
		a.Buf = append(append(a.Buf, byte(n)), text[:n]...)
		text = text[n:]
	}
}

// writeAliases writes a CNAME record, followed by the records of its target, for each
// message whose host is a name. It omits CNAME records whose target has no records, or
// that form a loop or exceed maxChain.
func (l *lookup) writeAliases(r keyRange, owner, name []byte, types typeSet, steps int) (found bool) {
	a := &l.q.Answer
	var m message
	for r.next(&m) {
		if !l.isAlias(&m, types) || l.loops(m.name, name, steps) {
			continue
		}
		if steps >= maxChain || l.steps >= maxSteps || l.q.ExceedsLimit() {
			return found
		}

		l.steps++
		l.chain[steps] = m.name
		count, ttls := a.Count, l.ttls
		at := l.beginRecord(owner, wire.TypeCNAME, len(m.name))
		a.Buf = append(a.Buf, m.name...)
		added := l.endRecord(at, len(owner), l.ttlOf(&m, l.q.Now()))
		sum := l.written.last // of this record

		switch {
		case !added, l.writeTarget(m.name, types, steps+1):
			found = true
		case l.mustWait:
			return false
		default:
			l.written.remove(sum)
			a.Buf, a.Count, l.ttls = a.Buf[:at], count, ttls
		}
	}
	return found
}

// loops reports whether the chain of CNAME records must not be continued with host:
// because host is in the chain, or below name, whose records include host's.
// SkyDNS follows a host below name.
func (l *lookup) loops(host string, name []byte, steps int) bool {
	first := host == l.root || l.root == "" && host == string(l.q.Name())
	if first || host == string(name) || slices.Contains(l.chain[:steps], host) {
		return true
	}
	return !l.skydns && len(host) > len(name) && wire.Name(host).Within(wire.Name(name))
}

// writeTarget writes the records of the target of a CNAME, SRV or MX record.
func (l *lookup) writeTarget(host string, types typeSet, steps int) (found bool) {
	var buf [2 * wire.MaxName]byte
	name := append(buf[:0], host...)
	if _, zone := l.zones.LongestOf(name); zone > 0 {
		path, ok := appendPath(buf[wire.MaxName:wire.MaxName], name)
		if !ok {
			return false
		}
		if zone == len(name) && types&setTXT == 0 {
			path = l.apexPath(path, wire.TypeA)
		}

		r, ok := l.find(path)
		if !ok || l.tooWide(&r) {
			return false
		}
		if r.nonEmpty() {
			var owner [wire.MaxName]byte
			return l.writeName(r, l.q.Answer.AppendOwner(owner[:0], name), name, types, steps)
		}
		if !l.through.Through(name) {
			return false
		}
	}

	if l.section == wire.Additional {
		return l.writeExternalAddresses(name)
	}
	return l.writeExternal(name)
}

// A subResult is the result of a sub-query.
type subResult struct {
	name       []byte
	t          wire.Type
	answer     wire.Answer
	rcode      wire.RCode
	ra, tc     bool
	err        error
	unanswered bool
}

// cloneResult returns a copy of the result of sub.
func cloneResult(sub *dns.Query) *subResult {
	res := resultOf(sub)
	res.name, res.answer.Buf = slices.Clone(res.name), slices.Clone(res.answer.Buf)
	return &res
}

func resultOf(sub *dns.Query) subResult {
	return subResult{sub.Name(), sub.Type, sub.Answer, sub.RCode, sub.RA, sub.TC, sub.Err, sub.Unanswered()}
}

// subQuery sends a sub-query and returns its result. ok is false if it has been
// parked; then Resolve must repeat the lookup.
func (l *lookup) subQuery(name []byte, t wire.Type) (subResult, bool) {
	if res := l.prior; res != nil && res.t == t && bytes.Equal(res.name, name) {
		return *res, true
	}
	if l.ctx != nil {
		return resultOf(l.q.ResolveSubQuery(l.ctx, name, t)), true
	}

	sub, ok := l.q.SubQuery(name, t)
	if !ok {
		l.mustWait, l.parked = true, true
		return subResult{}, false
	}
	return resultOf(sub), true
}

var errExternal = errors.New("etcd: looking up the targets of several CNAME records failed")

// writeExternal writes the records of a target outside the index. At the end of the
// answer's only chain, the reply gets the target's response code (RFC 6604). If no
// handler serves the target, the CNAME record is the answer.
func (l *lookup) writeExternal(name []byte) (found bool) {
	res, ok := l.subQuery(name, l.q.Type)
	if !ok {
		return false
	}
	if res.unanswered {
		return true
	}
	if l.skydns && res.rcode == wire.ServFail && wire.Name(name).Labels() < 2 {
		return false // SkyDNS omits unqualified names that it cannot look up
	}

	if found = l.copyRecords(&res, wire.Answers); l.branched {
		if !found && res.rcode == wire.ServFail {
			l.err = cmp.Or(res.err, errExternal)
		}
		return found
	}

	q := l.q
	q.RCode, q.RA, q.TC, q.Err = res.rcode, res.ra, res.tc, res.err
	if !found {
		l.copyRecords(&res, wire.Authority)
	}
	return true
}

// maxExternal is the largest number of targets outside the index whose addresses are
// looked up for the additional section.
const maxExternal = 8

// writeExternalAddresses writes the addresses of a target outside the index to
// the additional section.
func (l *lookup) writeExternalAddresses(name []byte) (found bool) {
	if l.external++; l.external > maxExternal {
		return false
	}
	for _, t := range [2]wire.Type{wire.TypeA, wire.TypeAAAA} {
		res, ok := l.subQuery(name, t)
		if !ok {
			return false
		}
		if res.rcode == wire.ServFail {
			l.external = maxExternal // the same upstream may serve the other targets
			return found
		}
		found = l.copyRecords(&res, wire.Answers) || found
	}
	return found
}

// copyRecords copies the records of a section of f to the same section, or to the
// additional section if that is being written. It reports whether f has any.
func (l *lookup) copyRecords(res *subResult, from wire.Section) (found bool) {
	a, to := &l.q.Answer, from
	if l.section == wire.Additional {
		to = wire.Additional
	}

	res.answer.Walk(func(s wire.Section, r wire.Record) bool {
		if s != from || l.q.ExceedsLimit() {
			return s < from
		}
		if to == wire.Additional && r.Type != wire.TypeA && r.Type != wire.TypeAAAA && r.Type != wire.TypeCNAME {
			return true
		}

		at, count := len(a.Buf), a.Count
		if _, err := a.AppendRecord(to, res.answer.Buf, r.Owner); err != nil {
			return true
		}

		found = true
		copied, _ := wire.ReadRecord(a.Buf, at)
		ttl := copied.TTL(a.Buf)
		copied.SetTTL(a.Buf, 0)
		if !l.written.add(l.seed, a.Buf[at:]) {
			a.Buf, a.Count = a.Buf[:at], count
			return true
		}
		copied.SetTTL(a.Buf, ttl)
		return true
	})
	return found
}
