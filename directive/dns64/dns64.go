// Package dns64 translates between A and AAAA records. The dns64 directive synthesizes
// AAAA records for IPv6-only clients (RFC 6147), the siit directive A records for
// clients that reach IPv6-only servers through a translator (RFC 7757). embed.go
// converts between IPv4 addresses and the IPv6 addresses that contain them.
package dns64

import (
	"context"
	"errors"
	"net/netip"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A DNS64 synthesizes AAAA records from A records: the dns64 directive. Its reference page is
// docs/reference/directives/dns64.md.
type DNS64 struct {
	translator
	prefix       netip.Prefix
	translateAll bool
	allowIPv4    bool
	metrics      *metrics.Registry
	translations *metrics.Counter // of the chain passed to BindChain
}

// Setup sets up the dns64 directive.
func Setup(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	h := &DNS64{metrics: b.Metrics}
	h.translator = translator{wire.TypeA, wire.TypeAAAA, func(ip netip.Addr) (netip.Addr, bool) {
		return netip.AddrFrom16(embed(h.prefix, ip.As4())), true
	}}
	prefix := func(d corefile.Directive) (err error) {
		h.prefix, err = parsePrefix(d, d.Args[0].Text)
		return err
	}

	err := errors.Join(config.Once(uses), d.Arity(0, 1))
	option := corefile.Option{Usage: "prefix PREFIX", Default: "64:ff9b::/96", Set: prefix}
	if err == nil && len(d.Args) == 1 {
		option.Default, err = "", prefix(d)
	}
	err = errors.Join(err, d.Options(
		option,
		corefile.Option{Usage: "translate_all", Set: corefile.Flag(&h.translateAll)},
		corefile.Option{Usage: "allow_ipv4", Set: corefile.Flag(&h.allowIPv4)},
	))
	b.Handle(h)
	return err
}

// ServeDNS parks AAAA queries and answers queries for the reverse names of
// addresses in the prefix.
func (h *DNS64) ServeDNS(q *dns.Query) dns.Verdict {
	if !h.allowIPv4 && !q.Peer.Addr().Is6() {
		return dns.Next
	}

	switch q.Type {
	case wire.TypeAAAA:
		// siit asks, on behalf of an A query, for the AAAA records that the name itself has.
		if validates(q) || q.AskedAs(wire.TypeA) {
			return dns.Next
		}
		return dns.Wait
	case wire.TypePTR:
		ip, ok := h.reversed(q)
		if !ok {
			return dns.Next
		}

		name := reverseName(ip)
		sub, ok := q.SubQuery(name, wire.TypePTR)
		if !ok {
			return dns.Wait
		}
		if sub.Unanswered() {
			return dns.Next
		}
		answerReverse(q, sub, name)
		return dns.Done
	}
	return dns.Next
}

// Resolve translates the answer to an AAAA query if it needs translation, and
// answers a parked query for a reverse name.
func (h *DNS64) Resolve(ctx context.Context, q *dns.Query) error {
	if q.Type == wire.TypePTR {
		ip, _ := h.reversed(q)
		if sub := q.ResumeSubQuery(ctx); sub.Unanswered() {
			q.Next(ctx)
		} else {
			answerReverse(q, sub, reverseName(ip))
		}
		return nil
	}

	q.Next(ctx)
	needed, emptied := h.needsTranslation(q)
	if !needed {
		return nil
	}

	sub := q.ResolveSubQuery(ctx, q.QuestionName(), wire.TypeA)
	hasA := h.translates(sub)
	own := h.translateAll && q.Answer.Count[wire.Answers] > 0
	if !hasA && !emptied && q.RCode == wire.NoError && (own || sub.RCode == wire.NoError || sub.RCode == wire.NXDomain) {
		q.TC = q.TC || sub.TC // the name may have A records
		return nil
	}

	// Without A records q gets sub's answer (RFC 6147 §5.1.6).
	if hasA {
		h.translations.Add(1)
	}
	return h.replace(q, sub)
}

// needsTranslation reports whether the answer to an AAAA query must be synthesized. It removes AAAA records that
// contain IPv4-mapped addresses from the answer (RFC 6147 §5.1.4), and reports whether no other ones were in it.
func (h *DNS64) needsTranslation(q *dns.Query) (needed, emptied bool) {
	// RFC 6147 §5.1.2; and without a valid signature there is no answer (RFC 8945 §5.2). A truncated answer may lack
	// AAAA records.
	if q.Dropped() || q.RCode == wire.NXDomain || q.RCode == wire.NotAuth || q.TC {
		return false, false
	}

	good, mapped, own := 0, 0, false
	q.Answer.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Answers && r.Type == wire.TypeAAAA {
			if isMapped(q.Answer.Buf[r.RData:r.Next]) {
				mapped++
			} else {
				good++
				own = own || isOwn(q, r)
			}
		}
		return true
	})

	if mapped > 0 {
		q.Answer.DeleteFunc(func(s wire.Section, r wire.Record) bool {
			return s == wire.Answers && r.Type == wire.TypeAAAA && isMapped(q.Answer.Buf[r.RData:r.Next])
		})
	}
	// A NAT64 translator does not reach the addresses of own zones, such as those of Services.
	return h.translateAll && !own || good == 0, mapped > 0 && good == 0
}

// isOwn reports whether a record of q's answer is of a name for which this server has data.
func isOwn(q *dns.Query, r wire.Record) bool {
	var buf [wire.MaxName]byte
	name, _, ok := wire.ReadName(buf[:0], q.Answer.Buf, r.Owner)
	return ok && q.OwnZones().Contains(name)
}

// isMapped reports whether the address in rdata is in ::ffff:0:0/96.
func isMapped(rdata []byte) bool {
	ip, ok := netip.AddrFromSlice(rdata)
	return ok && ip.Is4In6()
}

// reversed returns the IPv4 address inside the IPv6 address whose reverse name is
// queried. It returns false if the IPv6 address is not in the prefix.
func (h *DNS64) reversed(q *dns.Query) (netip.Addr, bool) {
	p, ok := wire.ParseReverse(q.Name())
	if !ok || !p.IsSingleIP() || !h.prefix.Contains(p.Addr()) {
		return netip.Addr{}, false
	}
	return extract(h.prefix, p.Addr())
}

// answerReverse answers q with a CNAME record to name, the reverse name of the
// IPv4 address, and the answer of sub.
func answerReverse(q, sub *dns.Query, name []byte) {
	ttl, ok := sub.Answer.MinTTL()
	if !ok {
		ttl = maxTTLWithoutSOA
	}
	ttl = min(ttl, maxTTLWithoutSOA)

	a := &q.Answer
	a.Buf = append(wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypeCNAME, ttl, len(name)), name...)
	a.Count[wire.Answers]++
	q.AA = true
	q.FollowCNAME(sub)
}

// BindChain returns a copy of h that counts for c.
func (h *DNS64) BindChain(c *dns.Chain) any {
	bound := *h
	bound.translations = h.metrics.Counter("coredns_dns64_requests_translated_total",
		"Queries answered with synthesized AAAA records.", "server", c.Server)
	return &bound
}
