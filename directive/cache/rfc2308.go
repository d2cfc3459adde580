package cache

import (
	"bytes"
	"encoding/binary"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// looks is what an answer seems to say, at a glance: it decides whose bounds
// its TTLs have.
func looks(q *dns.Query) entryKind {
	switch {
	case q.RCode == wire.NXDomain || q.RCode == wire.NoError && q.Answer.Count[wire.Answers] == 0:
		return denial
	case q.RCode == wire.ServFail:
		return failure
	}
	return success
}

// judge says what another server's answer says, and for how many seconds by its
// own records; not ok if it must not be kept: it is cut off, is about something
// else than the question, sends elsewhere, or denies without a SOA record that
// says for how long (RFC 2308 §5).
func judge(q *dns.Query) (kind entryKind, ttl uint32, ok bool) {
	switch {
	case q.TC:
		return 0, 0, false
	case q.RCode == wire.ServFail:
		return failure, 0, true
	case q.RCode != wire.NoError && q.RCode != wire.NXDomain:
		return 0, 0, false
	}
	var room [2 * wire.MaxName]byte
	end, has, ok := follow(q, &room)
	if !ok {
		return 0, 0, false
	}
	least, _ := q.Answer.MinTTL()
	if has {
		return success, least, q.RCode == wire.NoError
	}
	minimum, ok := authority(q, end)
	return denial, min(least, minimum), ok
}

// maxAliases is how many CNAMEs in one answer are looked at.
const maxAliases = 16

// follow goes from the question along the CNAMEs, in whatever order they stand.
// It gives the name where they end, in lower case, and says whether that has
// records of the type that was asked for. An answer that has other records than
// those is not ok.
func follow(q *dns.Query, room *[2 * wire.MaxName]byte) (end []byte, has, ok bool) {
	a := &q.Answer
	aliased := q.Type != wire.TypeCNAME && q.Type != wire.TypeANY
	end = wire.AppendLower(room[:0:wire.MaxName], q.Name())
	var other [wire.MaxName]byte
	aliases := 0
	if aliased {
		each(a, wire.Answers, func(r wire.Record) {
			if r.Type == wire.TypeCNAME {
				aliases++
			}
		})
	}
	if aliases > maxAliases {
		return nil, false, false
	}
	for range aliases {
		moved := false
		each(a, wire.Answers, func(r wire.Record) {
			if moved || r.Type != wire.TypeCNAME || !bytes.Equal(lowerName(&other, a.Buf, r.Owner), end) {
				return
			}
			end = append(end[:0], lowerName(&other, a.Buf, r.RData)...)
			moved = true
		})
		if !moved {
			return nil, false, false // it belongs to no name of ours
		}
	}
	ok = true
	each(a, wire.Answers, func(r wire.Record) {
		switch {
		case aliased && r.Type == wire.TypeCNAME:
			// A loop has one at its end.
			ok = ok && !bytes.Equal(lowerName(&other, a.Buf, r.Owner), end)
		case r.Type == q.Type || q.Type == wire.TypeANY:
			has = true
			ok = ok && bytes.Equal(lowerName(&other, a.Buf, r.Owner), end)
		case r.Type != wire.TypeRRSIG && r.Type != wire.TypeDNAME:
			ok = false
		}
	})
	return end, has, ok
}

// authority gives the MINIMUM of the SOA record in the authority section, if
// its zone holds name.
func authority(q *dns.Query, name []byte) (minimum uint32, ok bool) {
	a := &q.Answer
	var owner [wire.MaxName]byte
	each(a, wire.Authority, func(r wire.Record) {
		if r.Type == wire.TypeSOA && r.Next-r.RData >= 4 && isWithin(name, lowerName(&owner, a.Buf, r.Owner)) {
			minimum, ok = binary.BigEndian.Uint32(a.Buf[r.Next-4:]), true
		}
	})
	return minimum, ok
}

func each(a *wire.Answer, section wire.Section, f func(r wire.Record)) {
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s == section {
			f(r)
		}
		return s <= section
	})
}

// lowerName reads the name at msg[off:] into room; a name that cannot be read
// is empty, as no name is.
func lowerName(room *[wire.MaxName]byte, msg []byte, off int) []byte {
	name, _, ok := wire.ReadName(room[:0], msg, off)
	if !ok {
		return nil
	}
	return wire.AppendLower(name[:0], name)
}

// isWithin says whether name is zone or below it; both are in lower case.
func isWithin(name, zone []byte) bool {
	for i := 0; i < len(name) && len(zone) > 0; i += int(name[i]) + 1 {
		if bytes.Equal(name[i:], zone) {
			return true
		}
	}
	return false
}
