// Package dns64 gives clients that have IPv6 alone addresses for names that have
// IPv4 alone (RFC 6147): the directive dns64. embed.go writes one address into
// the other.
package dns64

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A DNS64 makes AAAA records of A records: the dns64 directive.
//
//	dns64 [PREFIX] {
//	    prefix PREFIX      # where IPv4 addresses are put into; 64:ff9b::/96
//	    translate_all      # also names that have AAAA records
//	    allow_ipv4         # also clients that ask over IPv4
//	}
//
// It can stand once in a server block. PREFIX has a length of 32, 40, 48, 56, 64
// or 96, and its bits 64 to 71 are zero (RFC 6052 §2.2).
//
// A client that asks over IPv6 for the AAAA records of a name that has none gets
// one for each of its A records, with the IPv4 address inside PREFIX. CNAMEs on
// the way stay. The TTL is that of the A record, and at most that of the SOA
// record with which AAAA was denied, or 600 seconds without one. Addresses in
// ::ffff:0:0/96 do not count as AAAA records, and are left out beside others. A
// name that does not exist stays so; if asking for AAAA failed in any other way,
// the A records decide (RFC 6147 §5.1.2). A client that validates by itself (DO
// and CD) gets what there is.
//
// The reverse name of an address in PREFIX is a CNAME for that of the IPv4
// address (RFC 6147 §5.3.1).
//
// With translate_all the AAAA records of a name that has A records are never
// given out.
//
//	.:1053 {
//	    dns64 64:ff9b::/96
//	    whoami
//	}
//
// Queries for AAAA records, by clients that are translated for, wait off their
// reader for the answer.
//
// Metrics: coredns_dns64_requests_translated_total{server} counts the replies
// that were made.
//
// Same as CoreDNS: syntax, defaults. Differs: AAAA records in ::ffff:0:0/96 are
// none; DO with CD is left alone; translate_all leaves names alone that have no A
// records. Ours: reverse names.
type DNS64 struct {
	prefix       netip.Prefix
	all, ipv4    bool
	metrics      *metrics.Registry
	translations *metrics.Counter // of the chain that BindChain was called for
}

// soaless is the longest TTL without a SOA record, in seconds (RFC 6147 §5.1.7).
const soaless = 600

// Setup is the Setup of dns64.
func Setup(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	h := &DNS64{prefix: netip.MustParsePrefix("64:ff9b::/96"), metrics: b.Metrics}
	prefix := func(d corefile.Directive) (err error) {
		h.prefix, err = parsePrefix(d, d.Args[0].Text)
		return err
	}
	err := errors.Join(config.Once(uses), d.Arity(0, 1))
	if err == nil && len(d.Args) == 1 {
		err = prefix(d)
	}
	err = errors.Join(err, d.Options(
		corefile.Option{Name: "prefix", Min: 1, Max: 1, Set: prefix},
		corefile.Option{Name: "translate_all", Set: corefile.Flag(&h.all)},
		corefile.Option{Name: "allow_ipv4", Set: corefile.Flag(&h.ipv4)},
	))
	b.Handle(h)
	return err
}

// ServeDNS takes AAAA queries, and the reverse names of the prefix. The others
// pass.
func (h *DNS64) ServeDNS(q *dns.Query) dns.Verdict {
	if !h.ipv4 && !q.Peer.Addr().Is6() {
		return dns.Next
	}
	switch q.Type {
	case wire.TypeAAAA:
		if q.DO && q.Flags&wire.FlagCD != 0 { // RFC 6147 §5.5
			return dns.Next
		}
		return dns.Wait
	case wire.TypePTR:
		ip, ok := h.reversed(q)
		if !ok {
			return dns.Next
		}
		var room [wire.MaxName]byte
		name := appendReverse(room[:0], ip)
		sub, ok := q.SubQuery(name, wire.TypePTR)
		if !ok {
			return dns.Wait
		}
		if sub.Unanswered() {
			return dns.Next
		}
		h.point(q, sub, name)
		return dns.Done
	}
	return dns.Next
}

// Resolve waits for the AAAA records, and for A records if there are none; or
// for what a reverse name leads to.
func (h *DNS64) Resolve(ctx context.Context, q *dns.Query) error {
	if q.Type == wire.TypePTR {
		ip, _ := h.reversed(q)
		if sub := q.ResumeSubQuery(ctx); sub.Unanswered() {
			q.Next(ctx)
		} else {
			h.point(q, sub, appendReverse(nil, ip))
		}
		return nil
	}
	q.Next(ctx)
	if !h.lacks(q) {
		return nil
	}
	sub, ok := q.SubQuery(q.QuestionName(), wire.TypeA)
	if !ok {
		sub = q.ResumeSubQuery(ctx)
	}
	return h.translate(q, sub)
}

// lacks says whether the answer to an AAAA query is one to be made anew. It
// takes records out that do not count, if others stay.
func (h *DNS64) lacks(q *dns.Query) bool {
	if q.Dropped() || q.RCode == wire.NXDomain { // RFC 6147 §5.1.2
		return false
	}
	good, mapped := 0, 0
	q.Answer.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Answers && r.Type == wire.TypeAAAA {
			if isMapped(q.Answer.Buf[r.RData:r.Next]) {
				mapped++
			} else {
				good++
			}
		}
		return true
	})
	if h.all || good == 0 {
		return true
	}
	if mapped > 0 {
		h.dropMapped(q)
	}
	return false
}

// dropMapped takes the AAAA records out that hold IPv4 addresses.
func (h *DNS64) dropMapped(q *dns.Query) {
	old := q.Answer
	q.Answer.Reset(nil, q.Question())
	old.Walk(func(s wire.Section, r wire.Record) bool {
		if s != wire.Answers || r.Type != wire.TypeAAAA || !isMapped(old.Buf[r.RData:r.Next]) {
			q.Answer.Append(s, old.Buf[r.Owner:r.Next], 1)
		}
		return true
	})
}

// isMapped says whether an address is in ::ffff:0:0/96.
func isMapped(rdata []byte) bool {
	ip, ok := netip.AddrFromSlice(rdata)
	return ok && ip.Is4In6()
}

// translate makes the answer of what sub has for the type A. If that is nothing
// the answer is sub's (RFC 6147 §5.1.6), unless q has one that is no error: an
// error of sub alone makes an error of NODATA.
func (h *DNS64) translate(q, sub *dns.Query) error {
	some := false
	sub.Answer.Walk(func(s wire.Section, r wire.Record) bool {
		some = some || s == wire.Answers && r.Type == wire.TypeA
		return true
	})
	denied := sub.RCode == wire.NoError || sub.RCode == wire.NXDomain
	if !some && q.RCode == wire.NoError && (denied || h.all && q.Answer.Count[wire.Answers] > 0) {
		return nil
	}
	most := negativeTTL(&q.Answer)
	q.Fail(sub.RCode)
	q.AA, q.RA, q.TC, q.Cacheable, q.Err = sub.AA, sub.RA, sub.TC, sub.Cacheable, sub.Err
	var err error
	sub.Answer.Walk(func(s wire.Section, r wire.Record) bool {
		switch {
		case s == wire.Answers && r.Type == wire.TypeA && r.Next-r.RData == 4:
			err = h.append(&q.Answer, sub.Answer.Buf, r, most)
		case s == wire.Answers && r.Type == typeRRSIG && coversA(sub.Answer.Buf[r.RData:r.Next]):
		default:
			_, err = q.Answer.AppendRecord(s, sub.Answer.Buf, r.Owner)
		}
		return err == nil
	})
	if err == nil && some {
		h.translations.Add(1)
	}
	return err
}

const typeRRSIG wire.Type = 46

// coversA says whether a signature is that of A records, of which none are left.
func coversA(rrsig []byte) bool {
	return len(rrsig) > 2 && binary.BigEndian.Uint16(rrsig) == uint16(wire.TypeA)
}

// negativeTTL is how long the name has no AAAA records, as far as is known.
func negativeTTL(a *wire.Answer) uint32 {
	most := uint32(soaless)
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Authority && r.Type == wire.TypeSOA {
			most = r.TTL(a.Buf)
		}
		return true
	})
	return most
}

// append writes the AAAA record that stands for an A record.
func (h *DNS64) append(a *wire.Answer, msg []byte, r wire.Record, most uint32) error {
	at := len(a.Buf)
	if _, err := a.AppendRecord(wire.Answers, msg, r.Owner); err != nil {
		return err
	}
	made, _ := wire.ReadRecord(a.Buf, at)
	ip := embed(h.prefix, [4]byte(a.Buf[made.RData:made.Next]))
	a.Buf = wire.AppendRecordHeader(a.Buf[:made.Head], "", wire.TypeAAAA, min(most, r.TTL(msg)), len(ip))
	a.Buf = append(a.Buf, ip[:]...)
	return nil
}

// reversed gives the IPv4 address in the one whose reverse name is asked for,
// if that one is in the prefix.
func (h *DNS64) reversed(q *dns.Query) (netip.Addr, bool) {
	ip, ok := parseReverse(q.Name())
	if !ok || !h.prefix.Contains(ip) {
		return netip.Addr{}, false
	}
	return extract(h.prefix, ip)
}

// point answers with the alias for a reverse name, and what that leads to.
func (h *DNS64) point(q, sub *dns.Query, name []byte) {
	ttl, ok := sub.Answer.MinTTL()
	if !ok {
		ttl = soaless
	}
	a := &q.Answer
	a.Buf = append(wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypeCNAME, min(ttl, soaless), len(name)), name...)
	a.Count[wire.Answers]++
	q.AA = true
	q.FollowCNAME(sub)
	h.translations.Add(1)
}

// BindChain returns a copy of h that counts for c.
func (h *DNS64) BindChain(c *dns.Chain) any {
	bound := *h
	bound.translations = h.metrics.Counter("coredns_dns64_requests_translated_total", "Questions that dns64 has answered with addresses of its own making.", "server", c.Server)
	return &bound
}
