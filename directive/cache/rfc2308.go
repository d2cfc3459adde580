package cache

import (
	"bytes"
	"encoding/binary"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// classify returns the kind of an answer from another server, and its TTL in
// seconds by its own records. ok reports whether the answer may be stored: it
// may not if it is truncated, has records that do not belong to the query,
// refers to other servers, or is negative without a SOA record (RFC 2308 §5).
// The kind of an answer that may not be stored is never success.
func classify(q *dns.Query) (kind answerKind, ttl uint32, ok bool) {
	switch {
	case q.TC:
		return failure, 0, false
	case isFailure(q.RCode):
		return failure, 0, true
	case q.RCode != wire.NoError && q.RCode != wire.NXDomain:
		return failure, 0, false
	}

	var buf [wire.MaxName]byte
	target, answered, ok := followAliases(q, &buf)
	if !ok || answered && q.RCode != wire.NoError {
		return failure, 0, false
	}

	lowest, _ := q.Answer.MinTTL()
	if answered {
		return success, lowest, true
	}
	minimum, ok := soaMinimum(q, target)
	return denial, min(lowest, minimum), ok
}

// apparentKind returns the kind of an answer by its response code and number of
// records alone.
func apparentKind(q *dns.Query) answerKind {
	switch {
	case q.RCode == wire.NXDomain || q.RCode == wire.NoError && q.Answer.Count[wire.Answers] == 0:
		return denial
	case isFailure(q.RCode):
		return failure
	}
	return success
}

// isFailure reports whether a server cannot answer a query, which it probably cannot a moment later.
func isFailure(c wire.RCode) bool { return c == wire.ServFail || c == wire.NotImp }

// maxAliases bounds the CNAME records of an answer that is stored.
const maxAliases = 16

// followAliases follows the CNAME records of the answer section, in any order,
// from the queried name. It returns the name at their end, in lower case, and
// whether the section has records of the queried type for it. ok is false if the
// section has other records than these.
func followAliases(q *dns.Query, buf *[wire.MaxName]byte) (target []byte, answered, ok bool) {
	a := &q.Answer
	followed := q.Type != wire.TypeCNAME && q.Type != wire.TypeANY
	target = wire.AppendLower(buf[:0], q.Name())
	var other [wire.MaxName]byte

	aliases := 0
	if followed {
		eachRecord(a, wire.Answers, func(r wire.Record) {
			if r.Type == wire.TypeCNAME {
				aliases++
			}
		})
	}
	if aliases > maxAliases {
		return nil, false, false
	}

	// The records may be in any order, so each step looks for the next one among all.
	for range aliases {
		moved := false
		eachRecord(a, wire.Answers, func(r wire.Record) {
			if moved || r.Type != wire.TypeCNAME || !bytes.Equal(wire.ReadLower(other[:0], a.Buf, r.Owner), target) {
				return
			}
			target = append(target[:0], wire.ReadLower(other[:0], a.Buf, r.RData)...)
			moved = true
		})
		if !moved {
			return nil, false, false // a CNAME that is not part of the chain
		}
	}

	ok = true
	eachRecord(a, wire.Answers, func(r wire.Record) {
		switch {
		case followed && r.Type == wire.TypeCNAME:
			// A loop has a CNAME at its end.
			ok = ok && !bytes.Equal(wire.ReadLower(other[:0], a.Buf, r.Owner), target)
		case r.Type == q.Type || q.Type == wire.TypeANY:
			answered = true
			ok = ok && bytes.Equal(wire.ReadLower(other[:0], a.Buf, r.Owner), target)
		case r.Type != wire.TypeRRSIG && r.Type != wire.TypeDNAME:
			ok = false
		}
	})
	return target, answered, ok
}

// soaMinimum returns the MINIMUM field of the SOA record in the authority
// section, if its zone contains name.
func soaMinimum(q *dns.Query, name []byte) (minimum uint32, ok bool) {
	a := &q.Answer
	var owner [wire.MaxName]byte
	eachRecord(a, wire.Authority, func(r wire.Record) {
		if r.Type == wire.TypeSOA && r.Next-r.RData >= 4 && wire.Within(name, wire.ReadLower(owner[:0], a.Buf, r.Owner)) {
			minimum, ok = binary.BigEndian.Uint32(a.Buf[r.Next-4:]), true
		}
	})
	return minimum, ok
}

func eachRecord(a *wire.Answer, section wire.Section, f func(r wire.Record)) {
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s == section {
			f(r)
		}
		return s <= section
	})
}
