package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Any answers queries of type ANY with a single small record: the any
// directive.
//
//	any
//
// Use it to keep your server from being used for amplification attacks. A query
// of type ANY gets one HINFO record "RFC8482" "" with a TTL of 8482, whatever
// its name is (RFC 8482 §4.2). The directives below do not see the query. any
// takes no arguments and no options.
//
//	.:1053 {
//	    any
//	    whoami
//	}
//
// Same as CoreDNS. Differs: the text is the one in the RFC.
type Any struct{}

// SetupAny sets up the any directive.
func SetupAny(b *config.Block, uses []corefile.Directive) error {
	b.Handle(&Any{})
	return noArguments(uses)
}

// RepeatableDNS reports that equal queries are treated in the same way.
func (*Any) RepeatableDNS(*dns.Query) bool { return true }

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
