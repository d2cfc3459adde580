package dns64

import (
	"fmt"
	"net/netip"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// ExplainDNS implements [dns.Explainer].
func (h *DNS64) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	text := ""
	switch {
	case q.Type != wire.TypeAAAA && q.Type != wire.TypePTR:
		return nil
	case !h.allowIPv4 && !q.Peer.Addr().Is6():
		text = "the client has an IPv4 address, so nothing is translated (option allow_ipv4)"
	case q.Type == wire.TypePTR:
		text = h.explainReverse(q, v)
	case v == dns.Next:
		text = "the client validates the answer itself (DO and CD), so nothing is translated"
	default:
		text = h.explainAddresses(q)
	}
	return []dns.Cause{{Text: text}}
}

func (h *DNS64) explainReverse(q *dns.Query, v dns.Verdict) string {
	ip, ok := h.reversed(q)
	switch {
	case !ok:
		return fmt.Sprintf("the name is not the reverse name of an address in %s", h.prefix)
	case v == dns.Next:
		return fmt.Sprintf("no server block answers the reverse name of %s, the IPv4 address in the name", ip)
	}
	return fmt.Sprintf("the address in the name contains %s in %s, "+
		"so the name is an alias of the reverse name of that", ip, h.prefix)
}

// explainAddresses explains the complete answer to an AAAA query.
func (h *DNS64) explainAddresses(q *dns.Query) string {
	translated, own := false, false
	q.Answer.Walk(func(s wire.Section, r wire.Record) bool {
		ip, ok := netip.AddrFromSlice(q.Answer.Buf[r.RData:r.Next])
		if ok && s == wire.Answers && r.Type == wire.TypeAAAA {
			translated, own = translated || h.prefix.Contains(ip), own || !h.prefix.Contains(ip)
		}
		return s == wire.Answers
	})

	switch {
	case own:
		return "the name has AAAA records of its own"
	case translated && h.translateAll:
		return fmt.Sprintf("the AAAA records are made from the A records of the name, "+
			"with the prefix %s (translate_all)", h.prefix)
	case translated:
		return fmt.Sprintf("the name has no AAAA records, so they are made from its A records, "+
			"with the prefix %s", h.prefix)
	case q.RCode == wire.NXDomain:
		return "the name does not exist, so it has no A records to translate"
	case q.RCode != wire.NoError:
		return "there is no answer for A records either"
	}
	return "the name has neither AAAA nor A records"
}
