package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Bufsize limits the size of replies over UDP: the bufsize directive. Its reference page is
// docs/reference/directives/bufsize.md.
type Bufsize struct{ size uint16 }

// SetupBufsize sets up the bufsize directive.
func SetupBufsize(b *config.Block, uses []corefile.Directive) error {
	size := 1232
	err := config.OneArgument(uses, 0, corefile.Int(&size, wire.MinUDPSize, wire.MaxUDPReply))
	b.Handle(&Bufsize{uint16(size)})
	return err
}

// AnyClass lets bufsize see queries of every class. It answers none.
func (*Bufsize) AnyClass() dns.ClassUse { return dns.ClassPassed }

// Repetition reports that equal queries have the same limit.
func (*Bufsize) Repetition() dns.Repetition { return dns.Repetition{} }

// ServeDNS sets the limit.
func (b *Bufsize) ServeDNS(q *dns.Query) dns.Verdict {
	q.UDPSize = min(q.UDPSize, b.size)
	if q.Proto == dns.UDP {
		q.ReplyLimit = int(b.size)
	}
	return dns.Next
}
