package etcd

import (
	"bytes"

	"github.com/seamark/seamark/wire"
)

// writeAlias answers a query at a name that has no records of the query type: with its CNAME
// record and the answer for the target, since the CNAME record is visible to every type (RFC
// 1034 §3.6.2). A query for CNAME itself gets the records of all keys.
func (l *lookup) writeAlias(r keyRange, path []byte) {
	// SkyDNS has no such rule, and in reverse zones the hosts are the targets of PTR records.
	q := l.q
	if l.skydns || wire.Within(q.Name(), wire.Name("\x04arpa\x00")) {
		return
	}

	l.section = wire.Answers
	l.selectGroup(&r, 0)
	deepest := bytes.Count(path, []byte{0}) + 1
	if q.Type == wire.TypeCNAME {
		var m message
		for r.next(&m) && !q.ExceedsLimit() {
			if depth(m.path) <= deepest && m.name != "" && !wire.Within([]byte(m.name), wire.Name(q.Name())) {
				l.writeTargetOf(wire.TypeCNAME, m.name, l.ttlOf(&m, q.Now()))
			}
		}
		return
	}

	if target, ttl := l.alias(r, deepest); target != "" && !wire.Within([]byte(target), wire.Name(q.Name())) {
		if l.writeTargetOf(wire.TypeCNAME, target, ttl); q.Type != wire.TypeANY {
			l.followAlias(target)
		}
	}
}

// alias returns the target of a name that is an alias: its own key has a name as host, or the
// keys one label below it (deepest), which are the only ones that external-dns writes, have the
// same one. It returns "" if a host there is an address or another name: several CNAME records
// of one name are not valid, nor are addresses beside one (RFC 2181 §10.1).
func (l *lookup) alias(r keyRange, deepest int) (target string, ttl uint32) {
	var m message
	for r.next(&m) {
		n := depth(m.path)
		switch {
		case n > deepest || !m.hasHost():
			continue
		case m.name == "" || target != "" && target != m.name:
			return "", 0
		case target == "":
			target, ttl = m.name, l.ttlOf(&m, l.q.Now())
		}

		ttl = min(ttl, l.ttlOf(&m, l.q.Now()))
		if n < deepest {
			break
		}
	}
	return target, ttl
}

// writeTargetOf writes a CNAME or PTR record of the query name.
func (l *lookup) writeTargetOf(t wire.Type, target string, ttl uint32) {
	at := l.beginRecord([]byte(wire.OwnerIsQuestion), t, len(target))
	l.q.Answer.Buf = append(l.q.Answer.Buf, target...)
	l.endRecord(at, len(wire.OwnerIsQuestion), ttl)
}

// followAlias adds the answer for the target of a CNAME record. If no handler serves it, the
// CNAME record is the answer.
func (l *lookup) followAlias(target string) {
	res, ok := l.subQuery([]byte(target), l.q.Type)
	if !ok || res.unanswered {
		return
	}

	q := l.q
	q.RCode, q.RA, q.TC, q.Err = res.rcode, res.ra, res.tc, res.err
	for s := wire.Answers; s <= wire.Additional; s++ {
		l.copyRecords(&res, s)
	}
}
