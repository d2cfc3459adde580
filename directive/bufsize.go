package directive

import (
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Bufsize limits the size of replies over UDP: the bufsize directive.
//
//	bufsize [SIZE]
//
// Use bufsize to avoid fragmented replies, which get lost in many networks. A
// client announces in its query the largest UDP reply that it accepts. bufsize
// lowers that to SIZE, 512 to 4096 bytes; the default is 1232. A reply that
// does not fit is truncated, and the client asks again over TCP. The size that
// the server announces in its own replies does not change.
//
//	.:1053 {
//	    bufsize 1232
//	    whoami
//	}
//
// Same as CoreDNS.
type Bufsize struct{ size uint16 }

// SetupBufsize sets up the bufsize directive.
func SetupBufsize(b *config.Block, uses []corefile.Directive) error {
	d, size := uses[0], 1232
	errs := []error{config.Once(uses), d.Arity(0, 1), d.Options()}
	if len(d.Args) == 1 {
		errs = append(errs, corefile.Int(&size, wire.MinUDPSize, wire.MaxUDPReply)(d))
	}
	b.Handle(&Bufsize{uint16(size)})
	return errors.Join(errs...)
}

// AnyClass lets bufsize see queries of every class. It answers none.
func (*Bufsize) AnyClass() bool { return false }

// ServeDNS lowers the size that the client accepts.
func (s *Bufsize) ServeDNS(q *dns.Query) dns.Verdict {
	q.UDPSize = min(q.UDPSize, s.size)
	return dns.Next
}
