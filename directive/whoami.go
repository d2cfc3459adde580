package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Whoami answers every query with the client's address and port: the whoami directive. Its
// reference page is docs/reference/directives/whoami.md.
type Whoami struct{}

// SetupWhoami sets up the whoami directive.
func SetupWhoami(b *config.Block, uses []corefile.Directive) error {
	b.Handle(&Whoami{})
	b.Answers(config.Extent{Use: uses[0], Zones: []wire.Name{wire.Root}})
	return config.NoArguments(uses)
}

// ServeDNS answers every query.
func (*Whoami) ServeDNS(q *dns.Query) dns.Verdict {
	q.AA = true
	var buf [64]byte
	peer := q.Peer.Addr().Unmap().WithZone("")
	q.Answer.Append(wire.Additional, wire.AppendAddress(buf[:0], wire.OwnerIsQuestion, 0, peer), 1)

	label := [...]string{dns.UDP: "_udp", dns.TCP: "_tcp"}[q.Network()]
	if 1+len(label)+len(q.Name()) > wire.MaxName {
		return dns.Done
	}
	port := q.Peer.Port()
	record := append(wire.AppendLabel(buf[:0], label), wire.OwnerIsQuestion...)
	const size = 2 + 2 + 2 + 1 // priority, weight, port, the root as target
	record = wire.AppendRecordHeader(record, "", wire.TypeSRV, 0, size)
	record = append(record, 0, 0, 0, 0, byte(port>>8), byte(port), 0)
	q.Answer.Append(wire.Additional, record, 1)
	return dns.Done
}

// ExplainDNS implements [dns.Explainer].
func (*Whoami) ExplainDNS(*dns.Query, dns.Verdict) []dns.Cause {
	return []dns.Cause{{
		Text: "every name has the client's address and port in the additional section, and no records of its own",
	}}
}
