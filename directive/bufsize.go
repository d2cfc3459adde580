package directive

import (
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Bufsize bounds the size of replies over UDP: the bufsize directive.
//
//	bufsize [SIZE]
//
// A client may say in its query that it takes replies over UDP of more than 512
// bytes. bufsize lets that be SIZE at most, 512 to 4096 bytes, 1232 unless
// given: larger ones may be fragmented on their way and get lost. What does not
// fit is asked again over TCP. What the server says of itself stays.
//
//	.:1053 {
//	    bufsize 1232
//	    whoami
//	}
//
// Same as CoreDNS.
type Bufsize struct{ size uint16 }

// SetupBufsize is the Setup of bufsize.
func SetupBufsize(b *config.Block, uses []corefile.Directive) error {
	d, size := uses[0], 1232
	errs := []error{config.Once(uses), d.Arity(0, 1), d.Options()}
	if len(d.Args) == 1 {
		errs = append(errs, corefile.Int(&size, wire.MinUDPSize, wire.MaxUDPReply)(d))
	}
	b.Handle(&Bufsize{uint16(size)})
	return errors.Join(errs...)
}

// AnyClass says that replies of all classes are bounded.
func (*Bufsize) AnyClass() bool { return false }

// ServeDNS bounds the size that the client takes.
func (s *Bufsize) ServeDNS(q *dns.Query) dns.Verdict {
	q.UDPSize = min(q.UDPSize, s.size)
	return dns.Next
}
