package dns64

import (
	"encoding/binary"
	"net/netip"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A translator turns address records of one type into records of the other.
type translator struct {
	from, to wire.Type
	address  func(netip.Addr) (netip.Addr, bool) // false if an address has no translation
}

// record returns the translation of r, a record of section s in msg.
func (t *translator) record(msg []byte, s wire.Section, r wire.Record) (ip netip.Addr, ok bool) {
	if s != wire.Answers || r.Type != t.from {
		return ip, false
	}

	ip, ok = netip.AddrFromSlice(msg[r.RData:r.Next])
	if !ok || ip.Is4() != (t.from == wire.TypeA) {
		return ip, false
	}
	return t.address(ip)
}

// translates reports whether the answer of sub has a record with a translation.
func (t *translator) translates(sub *dns.Query) (translates bool) {
	sub.Answer.Walk(func(s wire.Section, r wire.Record) bool {
		_, ok := t.record(sub.Answer.Buf, s, r)
		translates = translates || ok
		return s == wire.Answers && !translates
	})
	return translates
}

// replace replaces q's answer by the translation of sub's answer. Records without a translation
// are left out, and other records stay (RFC 6147 §5.3.2 and §5.3.3).
func (t *translator) replace(q, sub *dns.Query) (err error) {
	maxTTL := negativeTTL(&q.Answer)
	q.Fail(sub.RCode)
	q.AddExtendedErrors(sub)
	q.AA, q.RA, q.TC, q.Cacheable, q.Err = sub.AA, sub.RA, sub.TC, sub.Cacheable, sub.Err

	sub.Answer.Walk(func(s wire.Section, r wire.Record) bool {
		ip, ok := t.record(sub.Answer.Buf, s, r)
		switch {
		case ok:
			err = t.append(&q.Answer, sub.Answer.Buf, r, ip, maxTTL)
		case s == wire.Answers && (r.Type == t.from || t.signs(sub.Answer.Buf, r)):
		default:
			_, err = q.Answer.AppendRecord(s, sub.Answer.Buf, r.Owner)
		}
		return err == nil
	})
	return err
}

// append writes the record with the address ip that is synthesized from the record r.
func (t *translator) append(a *wire.Answer, msg []byte, r wire.Record, ip netip.Addr, maxTTL uint32) error {
	at := len(a.Buf)
	if _, err := a.AppendRecord(wire.Answers, msg, r.Owner); err != nil {
		return err
	}

	made, _ := wire.ReadRecord(a.Buf, at)
	a.Buf = wire.AppendRecordHeader(a.Buf[:made.Head], "", t.to, min(maxTTL, r.TTL(msg)), ip.BitLen()/8)
	a.Buf = append(a.Buf, ip.AsSlice()...)
	return nil
}

const typeRRSIG wire.Type = 46

// signs reports whether r is the signature of records that are translated. Such signatures are
// dropped, since the answer no longer contains the records.
func (t *translator) signs(msg []byte, r wire.Record) bool {
	rdata := msg[r.RData:r.Next]
	return r.Type == typeRRSIG && len(rdata) > 2 && binary.BigEndian.Uint16(rdata) == uint16(t.from)
}

// validates reports whether the client validates answers itself, which fails for synthesized
// records (RFC 6147 §5.5).
func validates(q *dns.Query) bool { return q.DO && q.Flags&wire.FlagCD != 0 }

// maxTTLWithoutSOA limits the TTL of synthesized records if the negative answer
// has no SOA record, in seconds (RFC 6147 §5.1.7).
const maxTTLWithoutSOA = 600

// negativeTTL returns the TTL of the negative answer a.
func negativeTTL(a *wire.Answer) uint32 {
	maxTTL := uint32(maxTTLWithoutSOA)
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Authority && r.Type == wire.TypeSOA {
			maxTTL = r.TTL(a.Buf)
		}
		return true
	})
	return maxTTL
}
