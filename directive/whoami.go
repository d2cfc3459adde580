package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Whoami answers every query with the client's address and port: the whoami
// directive.
//
//	whoami
//
// It takes no arguments and no options, and answers every name and type, so the
// directives below it receive no queries. The answer section is empty. The
// additional section has the client's address as an A or AAAA record of the
// query name, and its port as an SRV record of that name prefixed with _udp or
// _tcp. Both have a TTL of 0. The answer is authoritative.
//
//	.:1053 {
//	    whoami
//	}
//
// Same as CoreDNS. Differs: the SRV record is omitted if its name would be
// longer than 255 bytes.
type Whoami struct{}

// SetupWhoami sets up the whoami directive.
func SetupWhoami(b *config.Block, uses []corefile.Directive) error {
	b.Handle(&Whoami{})
	return noArguments(uses)
}

// ServeDNS answers every query.
func (*Whoami) ServeDNS(q *dns.Query) dns.Verdict {
	q.AA = true
	var buf [64]byte
	peer := q.Peer.Addr().Unmap().WithZone("")
	q.Answer.Append(wire.Additional, wire.AppendAddress(buf[:0], wire.OwnerIsQuestion, 0, peer), 1)
	label := [...]string{dns.UDP: "_udp", dns.TCP: "_tcp"}[q.Proto]
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
	return []dns.Cause{{Text: "every name has the client's address and port in the additional section, and no records of its own"}}
}
