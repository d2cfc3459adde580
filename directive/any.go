package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Any answers queries of type ANY with a single small record: the any directive. Its reference
// page is docs/reference/directives/any.md.
type Any struct{}

// SetupAny sets up the any directive.
func SetupAny(b *config.Block, uses []corefile.Directive) error {
	b.Handle(&Any{})
	return config.NoArguments(uses)
}

// Repetition reports that equal queries are treated in the same way.
func (*Any) Repetition() dns.Repetition { return dns.Repetition{} }

// ServeDNS answers queries of type ANY.
func (*Any) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Type != wire.TypeANY {
		return dns.Next
	}
	const ttl, cpu, system = 8482, "\x07RFC8482", "\x00"
	var buf [64]byte
	record := wire.AppendRecordHeader(buf[:0], wire.OwnerIsQuestion, wire.TypeHINFO, ttl, len(cpu+system))
	q.Answer.Append(wire.Answers, append(record, cpu+system...), 1)
	return dns.Done
}

// ExplainDNS implements [dns.Explainer].
func (*Any) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	if v == dns.Next {
		return nil
	}
	return []dns.Cause{{Text: "queries of type ANY get one record that says so (RFC 8482), whatever the name has"}}
}
