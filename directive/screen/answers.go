package screen

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// FinishDNS filters the answer of an upstream.
func (s *Screen) FinishDNS(q *dns.Query) {
	if !q.Cacheable || q.Answer.Empty() {
		return
	}
	if _, trusted := s.trusted.Longest(&q.Request, 0); s.rebind && trusted < 0 && s.refuse(q) {
		return
	}
	if len(s.drop) > 0 {
		s.dropFrom(q)
	}
}

// refuse removes the records of an answer that contains a private address, and
// private addresses from the additional section. It reports whether the answer
// was refused.
func (s *Screen) refuse(q *dns.Query) bool {
	var bad netip.Addr
	additional := false
	a := &q.Answer
	a.Walk(func(section wire.Section, r wire.Record) bool {
		addr := s.private(r.Type, a.Buf[r.RData:r.Next])
		if addr.IsValid() && section == wire.Answers {
			bad = addr
		}
		additional = additional || addr.IsValid()
		return !bad.IsValid()
	})

	switch {
	case bad.IsValid():
		a.Clear()
		q.AA, q.AD, q.TC = false, false, false
		q.RemoveReplyOption(wire.OptionEDE) // of the upstream's answer
		q.AddExtendedError(wire.EDEBlocked, "private address")
		s.logRebind(q, bad)
	case additional:
		a.DeleteFunc(func(_ wire.Section, r wire.Record) bool {
			return s.private(r.Type, a.Buf[r.RData:r.Next]).IsValid()
		})
	default:
		return false
	}
	s.rebinds.AddTo(q.Shard(), 1)
	return bad.IsValid()
}

// private returns the first private address in a record, or the zero Addr.
func (s *Screen) private(t wire.Type, rdata []byte) netip.Addr {
	switch t {
	case wire.TypeA, wire.TypeAAAA:
		return s.privateIn(rdata, len(rdata))
	case wire.TypeSVCB, wire.TypeHTTPS:
		return s.privateHint(rdata)
	}
	return netip.Addr{}
}

// privateIn returns the first private address among addresses of n bytes each.
func (s *Screen) privateIn(addrs []byte, n int) netip.Addr {
	for ; n > 0 && len(addrs) >= n; addrs = addrs[n:] {
		addr, _ := netip.AddrFromSlice(addrs[:n])
		if isPrivate(addr) && !(s.localhost && isLocalhost(addr)) {
			return addr
		}
	}
	return netip.Addr{}
}

// privateHint returns the first private address in the hints of an SVCB or
// HTTPS record (RFC 9460 §7.3).
func (s *Screen) privateHint(rdata []byte) netip.Addr {
	const ipv4hint, ipv6hint, priority, root = 4, 6, 2, 1
	at := priority
	for at < len(rdata) && rdata[at] != 0 { // the target
		at += int(rdata[at]) + 1
	}

	params := rdata[min(at+root, len(rdata)):]
	for len(params) >= 4 {
		key, n := binary.BigEndian.Uint16(params), int(binary.BigEndian.Uint16(params[2:]))
		value := params[4:min(4+n, len(params))]
		params = params[4+len(value):]

		var addr netip.Addr
		switch key {
		case ipv4hint:
			addr = s.privateIn(value, 4)
		case ipv6hint:
			addr = s.privateIn(value, 16)
		}
		if addr.IsValid() {
			return addr
		}
	}
	return netip.Addr{}
}

// logRebind logs a refused answer, at most once a second. The message is
// dnsmasq's, because log monitors search for it.
func (s *Screen) logRebind(q *dns.Query, bad netip.Addr) {
	now := q.Now().Unix()
	if last := s.lastLogged.Load(); last == now || !s.lastLogged.CompareAndSwap(last, now) {
		s.suppressed.Add(1)
		return
	}

	name := wire.AppendText(nil, q.Name())
	attrs := []any{
		slog.String("qname", string(name)), slog.String("type", q.Type.String()), slog.String("address", bad.String()),
	}
	if n := s.suppressed.Swap(0); n > 0 {
		attrs = append(attrs, slog.Uint64("suppressed", n))
	}
	s.log.Warn("screen: Possible DNS-rebind attack detected", attrs...)
}

// dropFrom removes records of the types in s.drop. If the answer has no other
// records it becomes NODATA.
func (s *Screen) dropFrom(q *dns.Query) {
	a := &q.Answer
	before := a.Count

	var room [wire.MaxName]byte
	owner, ttl := room[:0], uint32(1<<31-1)
	answered := false // a record other than an alias remains
	a.DeleteFunc(func(section wire.Section, r wire.Record) bool {
		t := r.Type
		if t == wire.TypeRRSIG && r.Next-r.RData > 2 {
			t = wire.Type(binary.BigEndian.Uint16(a.Buf[r.RData:]))
		}

		removed := slices.Contains(s.drop, t)
		switch {
		case section != wire.Answers:
		case removed:
			owner, _, _ = wire.ReadName(room[:0], a.Buf, r.Owner)
			ttl = min(ttl, r.TTL(a.Buf))
		case t != wire.TypeCNAME && t != wire.TypeDNAME:
			answered = true
		}
		return removed
	})

	if a.Count == before {
		return
	}
	s.drops.AddTo(q.Shard(), 1)
	q.AD = false

	if answered || len(owner) == 0 || q.RCode != wire.NoError {
		return
	}

	a.DeleteFunc(func(section wire.Section, _ wire.Record) bool { return section != wire.Answers })
	appendSOA(a, owner, ttl)
	q.RemoveReplyOption(wire.OptionEDE) // of the records that are gone
	q.AddExtendedError(wire.EDEFiltered, "")
}

// appendSOA appends an SOA record with which a negative answer can be cached for
// ttl seconds (RFC 2308 §5). It belongs to no zone; its other fields follow RFC
// 6303 §3.
func appendSOA(a *wire.Answer, owner []byte, ttl uint32) {
	const server, mailbox = "\x00", "\x06nobody\x07invalid\x00"
	a.Buf = a.AppendOwner(a.Buf, owner)
	a.Buf = wire.AppendRecordHeader(a.Buf, "", wire.TypeSOA, ttl, len(server+mailbox)+20)
	a.Buf = append(a.Buf, server+mailbox...)
	for _, n := range [...]uint32{1, 3600, 1200, 604800, ttl} {
		a.Buf = binary.BigEndian.AppendUint32(a.Buf, n)
	}
	a.Append(wire.Authority, nil, 1)
}
