package directive

import (
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Whoami tells a client its own address and port: the whoami directive.
//
//	whoami
//
// It has no options and answers every name and type, so nothing below it is
// asked. The answer section is empty; the additional section has the client's
// address as an A or AAAA record of the name asked for, and its port as an SRV
// record of _udp or _tcp in front of that name, both with a TTL of 0. The
// answer is authoritative.
//
//	.:1053 {
//	    whoami
//	}
//
// Same as CoreDNS. The SRV record is left out where its name would be longer
// than 255 bytes.
type Whoami struct{}

// SetupWhoami is the Setup of whoami.
func SetupWhoami(b *config.Block, uses []corefile.Directive) error {
	b.Handle(&Whoami{})
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options())
}

// ServeDNS is Done with every query.
func (*Whoami) ServeDNS(q *dns.Query) dns.Verdict {
	q.AA = true
	var room [64]byte
	peer := q.Peer.Addr().Unmap().WithZone("")
	q.Answer.Append(wire.Additional, wire.AppendAddress(room[:0], wire.OwnerIsQuestion, 0, peer), 1)
	label := [...]string{dns.UDP: "_udp", dns.TCP: "_tcp"}[q.Proto]
	if 1+len(label)+len(q.Name()) > wire.MaxName {
		return dns.Done
	}
	port := q.Peer.Port()
	record := append(wire.AppendLabel(room[:0], label), wire.OwnerIsQuestion...)
	const size = 2 + 2 + 2 + 1 // priority, weight, port, the root as target
	record = wire.AppendRecordHeader(record, "", wire.TypeSRV, 0, size)
	record = append(record, 0, 0, 0, 0, byte(port>>8), byte(port), 0)
	q.Answer.Append(wire.Additional, record, 1)
	return dns.Done
}
