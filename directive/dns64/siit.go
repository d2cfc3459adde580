package dns64

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A SIIT synthesizes A records from AAAA records: the siit directive. Its reference page is
// docs/reference/directives/siit.md.
type SIIT struct {
	translator
	prefix       netip.Prefix
	mappings     map[netip.Addr]netip.Addr // IPv4 addresses by IPv6 address
	metrics      *metrics.Registry
	translations *metrics.Counter // of the chain passed to BindChain
}

// SetupSIIT sets up the siit directive.
func SetupSIIT(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	h := &SIIT{metrics: b.Metrics, mappings: map[netip.Addr]netip.Addr{}}
	h.translator = translator{wire.TypeAAAA, wire.TypeA, h.translate}

	err := errors.Join(config.Once(uses), d.Arity(0, 0), d.Options(
		corefile.Option{Usage: "ipv6_prefix PREFIX", Default: "64:ff9b::/96", Set: func(d corefile.Directive) (err error) {
			h.prefix, err = parsePrefix(d, d.Args[0].Text)
			return err
		}},
		corefile.Option{Usage: "eam IPV4 IPV6", Set: h.addMapping},
	))
	b.Handle(h)
	return err
}

// addMapping adds an explicit address mapping (RFC 7757).
func (h *SIIT) addMapping(d corefile.Directive) error {
	v4, err4 := netip.ParseAddr(d.Args[0].Text)
	v6, err6 := netip.ParseAddr(d.Args[1].Text)
	switch {
	case err4 != nil || !v4.Unmap().Is4():
		return d.Errorf("want an IPv4 address, got %q", d.Args[0].Text)
	case err6 != nil || !v6.Is6() || v6.Is4In6() || v6.Zone() != "":
		return d.Errorf("want an IPv6 address, got %q", d.Args[1].Text)
	}
	h.mappings[v6] = v4.Unmap()
	return nil
}

// translate returns the IPv4 address of an IPv6 address. Explicit mappings precede the prefix
// (RFC 7757 §3.3.2).
func (h *SIIT) translate(ip netip.Addr) (netip.Addr, bool) {
	if v4, ok := h.mappings[ip]; ok {
		return v4, true
	}
	if !h.prefix.Contains(ip) || ip.As16()[reserved] != 0 {
		return netip.Addr{}, false
	}
	return embedded(h.prefix, ip), true
}

// ServeDNS passes each query on.
func (h *SIIT) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

// CompleteDNS reports whether the answer to an A query has no A records, so that AAAA records
// of the name have to be looked up.
func (h *SIIT) CompleteDNS(q *dns.Query) dns.Verdict {
	// dns64 asks, on behalf of an AAAA query, for the A records that the name itself has.
	if q.Type != wire.TypeA || q.RCode == wire.NXDomain || q.RCode == wire.NotAuth || q.TC || validates(q) || q.AskedAs(wire.TypeAAAA) {
		return dns.Done
	}

	verdict := dns.Wait
	q.Answer.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Answers && r.Type == wire.TypeA {
			verdict = dns.Done
		}
		return s == wire.Answers && verdict == dns.Wait
	})
	return verdict
}

// Resolve replaces an answer without A records by the translation of the name's AAAA records.
func (h *SIIT) Resolve(ctx context.Context, q *dns.Query) error {
	sub := q.ResolveSubQuery(ctx, q.QuestionName(), wire.TypeAAAA)
	has := h.translates(sub)

	// A NODATA answer says that the name exists, which NXDOMAIN for another type cannot deny.
	if !has && (sub.RCode == wire.NoError || sub.RCode == wire.NXDomain && q.RCode == wire.NoError) {
		q.TC = sub.TC // the name may have AAAA records
		return nil
	}
	if has {
		h.translations.Add(1)
		q.Reason = synthesized
	}
	return h.replace(q, sub)
}

// BindChain returns a copy of h that counts for c.
func (h *SIIT) BindChain(c *dns.Chain) any {
	bound := *h
	bound.translations = h.metrics.Counter("coredns_siit_requests_translated_total",
		"Queries answered with synthesized A records.", "server", c.Server)
	return &bound
}

// synthesized is the reason of an answer with A records of siit. Other handlers count from zero.
const synthesized = 255

// ExplainDNS implements [dns.Explainer].
func (h *SIIT) ExplainDNS(q *dns.Query, _ dns.Verdict) []dns.Cause {
	if q.Type != wire.TypeA || q.AskedAs(wire.TypeAAAA) {
		return nil
	}
	if validates(q) {
		return []dns.Cause{{Text: "the client validates the answer itself (DO and CD), so nothing is translated"}}
	}

	text := "the name has A records of its own"
	switch {
	case q.Reason == synthesized:
		text = "the name has no A records, so they are made from its AAAA records"
	case q.RCode == wire.NXDomain:
		text = "the name does not exist, so it has no AAAA records to translate"
	case h.CompleteDNS(q) == dns.Wait:
		text = fmt.Sprintf("the name has no A records, and no AAAA records with an address in %s or of an eam", h.prefix)
	}
	return []dns.Cause{{Text: text}}
}
