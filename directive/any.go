package directive

import (
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An Any answers questions for ANY with next to nothing: the any directive.
//
//	any
//
// It has no options. The answer to type ANY, whatever the name, is one HINFO
// record "RFC8482" "" with a TTL of 8482 (RFC 8482 §4.2), so that nobody gets
// large replies sent to someone else by asking for everything. The handlers
// below are not asked.
//
//	.:1053 {
//	    any
//	    whoami
//	}
//
// Same as CoreDNS. Differs: the text is that of the RFC.
type Any struct{}

// SetupAny is the Setup of any.
func SetupAny(b *config.Block, uses []corefile.Directive) error {
	b.Handle(&Any{})
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options())
}

// ServeDNS answers ANY.
func (*Any) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Type != wire.TypeANY {
		return dns.Next
	}
	const ttl, cpu, system = 8482, "\x07RFC8482", "\x00"
	var room [64]byte
	record := wire.AppendRecordHeader(room[:0], wire.OwnerIsQuestion, wire.TypeHINFO, ttl, len(cpu+system))
	q.Answer.Append(wire.Answers, append(record, cpu+system...), 1)
	return dns.Done
}
