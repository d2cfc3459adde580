package etcd

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// kinds is a set of record types that end a chain of CNAME records.
type kinds uint8

const (
	kindA kinds = 1 << iota
	kindAAAA
	kindTXT
)

func kindOf(t wire.Type) kinds {
	switch t {
	case wire.TypeA:
		return kindA
	case wire.TypeAAAA:
		return kindAAAA
	case wire.TypeTXT:
		return kindTXT
	}
	return 0
}

// has reports whether m has data of one of the kinds.
func (k kinds) has(m *message) bool {
	return k&kindA != 0 && m.addr.Is4() || k&kindAAAA != 0 && m.addr.Is6() || k&kindTXT != 0 && m.text != ""
}

// isAlias reports whether m's host is a name to follow for records of kinds k.
// SkyDNS does not follow names for TXT.
func (l *lookup) isAlias(m *message, k kinds) bool {
	return m.name != "" && (k&kindTXT == 0 || m.text == "" && !l.skydns)
}

// writeName writes the records of a name and of its CNAME targets, and reports
// whether it wrote any. owner is the owner name as it is written in the answer,
// and steps the number of CNAME records before it.
func (l *lookup) writeName(r keyRange, owner, name []byte, k kinds, steps int) (found bool) {
	l.selectGroup(&r, k)
	found, names := l.writeDirect(r, owner, k)
	if names > 1 || names > 0 && found {
		l.branched = true
	}
	if names > 0 && l.writeAliases(r, owner, name, k, steps) {
		found = true
	}
	return found
}

// selectGroup restricts r to the messages of one group, if its keys have groups.
func (l *lookup) selectGroup(r *keyRange, k kinds) {
	if r.hasGroups() {
		r.chooseGroup(k&kindTXT != 0)
	}
}

// writeDirect writes the records of the messages themselves. It reports whether
// there are any, and returns the number of aliases.
func (l *lookup) writeDirect(r keyRange, owner []byte, k kinds) (found bool, names int) {
	q, a := l.q, &l.q.Answer
	var m message
	for r.next(&m) {
		if len(a.Buf) > q.SizeLimit() && (l.section == wire.Answers || q.ExceedsLimit()) {
			return true, 0 // the answer will be truncated
		}
		if l.isAlias(&m, k) {
			names++
		}
		if !k.has(&m) {
			continue
		}
		found = true
		at := len(a.Buf)
		if k&kindTXT != 0 {
			l.text(owner, m.text)
		} else {
			a.Buf = wire.AppendAddress(a.Buf, owner, 0, m.addr)
		}
		l.endRecord(at, len(owner), l.ttlOf(&m, q.Now()))
	}
	return found, names
}

// text writes a TXT record of strings of up to 255 bytes.
func (l *lookup) text(owner []byte, text string) {
	a := &l.q.Answer
	l.beginRecord(owner, wire.TypeTXT, len(text)+(len(text)+254)/255)
	for text != "" {
		n := min(len(text), 255)
		a.Buf = append(append(a.Buf, byte(n)), text[:n]...)
		text = text[n:]
	}
}

// writeAliases writes a CNAME record, followed by the records of its target, for
// each message whose host is a name. It omits CNAME records whose target has no
// records, that form a loop, or that exceed maxChain.
func (l *lookup) writeAliases(r keyRange, owner, name []byte, k kinds, steps int) (found bool) {
	a := &l.q.Answer
	var m message
	for r.next(&m) {
		if !l.isAlias(&m, k) || l.loops(m.name, name, steps) {
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
		fresh, sum := l.endRecord(at, len(owner), l.ttlOf(&m, l.q.Now())), l.written.last
		switch {
		case !fresh, l.writeTarget(m.name, k, steps+1):
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

// loops reports whether a host is already part of the chain. A host below name is
// skipped because its keys already belong to name; SkyDNS follows it.
func (l *lookup) loops(host string, name []byte, steps int) bool {
	if host == string(name) || host == l.root || l.root == "" && host == string(l.q.Name()) || slices.Contains(l.chain[:steps], host) {
		return true
	}
	return !l.skydns && len(host) > len(name) && wire.Name(host).Within(wire.Name(name))
}

// writeTarget writes the records of the target of a CNAME, SRV or MX record.
func (l *lookup) writeTarget(host string, k kinds, steps int) (found bool) {
	var buf [2 * wire.MaxName]byte
	name := append(buf[:0], host...)
	if l.serves(name) {
		path, ok := appendPath(buf[wire.MaxName:wire.MaxName], name)
		if !ok {
			return false
		}
		for i := range l.zones {
			if k&kindTXT == 0 && string(l.zones[i].name) == host {
				path = l.apexPath(path, wire.TypeA)
			}
		}
		r, ok := l.find(path)
		if !ok || l.tooWide(&r) {
			return false
		}
		if r.nonEmpty() {
			var owner [wire.MaxName]byte
			return l.writeName(r, l.q.Answer.AppendOwner(owner[:0], name), name, k, steps)
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

// cloneResult returns the result of sub in memory of its own.
func cloneResult(sub *dns.Query) *subResult {
	f := resultOf(sub)
	f.name, f.answer.Buf = slices.Clone(f.name), slices.Clone(f.answer.Buf)
	return &f
}

func resultOf(sub *dns.Query) subResult {
	return subResult{sub.Name(), sub.Type, sub.Answer, sub.RCode, sub.RA, sub.TC, sub.Err, sub.Unanswered()}
}

// subQuery sends a sub-query. ok is false if it must be repeated where it may
// block.
func (l *lookup) subQuery(name []byte, t wire.Type) (subResult, bool) {
	if f := l.prior; f != nil && f.t == t && bytes.Equal(f.name, name) {
		return *f, true
	}
	sub, ok := l.q.SubQuery(name, t)
	if !ok && l.ctx == nil {
		l.mustWait, l.parked = true, true
		return subResult{}, false
	}
	if !ok {
		sub = l.q.ResumeSubQuery(l.ctx)
	}
	return resultOf(sub), true
}

var errExternal = errors.New("etcd: looking up the targets of several CNAME records failed")

// writeExternal writes the records of a target outside the index. At the end of a
// single chain the reply has the target's response code (RFC 6604); if no handler
// serves the target, the CNAME record is the answer.
func (l *lookup) writeExternal(name []byte) (has bool) {
	f, ok := l.subQuery(name, l.q.Type)
	if !ok {
		return false
	}
	if f.unanswered {
		return true
	}
	if l.skydns && f.rcode == wire.ServFail && wire.Name(name).Labels() < 2 {
		return false // SkyDNS omits unqualified names that it cannot look up
	}
	if has = l.copyRecords(&f, wire.Answers); l.branched {
		if !has && f.rcode == wire.ServFail {
			l.err = cmp.Or(f.err, errExternal)
		}
		return has
	}
	q := l.q
	q.RCode, q.RA, q.TC, q.Err = f.rcode, f.ra, f.tc, f.err
	if !has {
		l.copyRecords(&f, wire.Authority)
	}
	return true
}

// maxExternal is the number of targets outside the index whose addresses are
// looked up for the additional section.
const maxExternal = 8

// writeExternalAddresses writes the addresses of a target outside the index to
// the additional section.
func (l *lookup) writeExternalAddresses(name []byte) (has bool) {
	if l.external++; l.external > maxExternal {
		return false
	}
	for _, t := range [2]wire.Type{wire.TypeA, wire.TypeAAAA} {
		f, ok := l.subQuery(name, t)
		if !ok {
			return false
		}
		if f.rcode == wire.ServFail {
			l.external = maxExternal // the same upstream may serve the other targets
			return has
		}
		has = l.copyRecords(&f, wire.Answers) || has
	}
	return has
}

// copyRecords copies the records of a section of f to the same section, or to the
// additional section if that is being written. It reports whether f has any.
func (l *lookup) copyRecords(f *subResult, from wire.Section) (any bool) {
	a, to := &l.q.Answer, from
	if l.section == wire.Additional {
		to = wire.Additional
	}
	f.answer.Walk(func(s wire.Section, r wire.Record) bool {
		if s != from || l.q.ExceedsLimit() {
			return s < from
		}
		if to == wire.Additional && r.Type != wire.TypeA && r.Type != wire.TypeAAAA && r.Type != wire.TypeCNAME {
			return true
		}
		at, count := len(a.Buf), a.Count
		if _, err := a.AppendRecord(to, f.answer.Buf, r.Owner); err != nil {
			return true
		}
		any = true
		own, _ := wire.ReadRecord(a.Buf, at)
		ttl := own.TTL(a.Buf)
		own.SetTTL(a.Buf, 0)
		if !l.written.add(l.seed, a.Buf[at:]) {
			a.Buf, a.Count = a.Buf[:at], count
			return true
		}
		own.SetTTL(a.Buf, ttl)
		return true
	})
	return any
}
