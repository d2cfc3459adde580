package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Bufsize limits the size of replies over UDP: the bufsize directive.
//
//	bufsize [SIZE]
//
// A client announces in its query the largest UDP reply that it accepts, or
// accepts 512 bytes. The server sends at most 1232 bytes even if the client
// accepts more: larger replies are fragmented, which many networks drop, and
// help an attacker who forges a victim's address. Use bufsize to set another
// limit, SIZE, of 512 to 4096 bytes. A reply that does not fit is truncated, and
// the client repeats the query over TCP. The size that the server announces in
// its own replies does not change.
//
//	.:1053 {
//	    bufsize 1232
//	    whoami
//	}
//
// Same as CoreDNS: syntax, and the default SIZE of 1232. Differs: without
// bufsize the limit is 1232 bytes; CoreDNS sends as much as the client accepts.
type Bufsize struct{ size uint16 }

// SetupBufsize sets up the bufsize directive.
func SetupBufsize(b *config.Block, uses []corefile.Directive) error {
	size := 1232
	err := oneArgument(uses, 0, corefile.Int(&size, wire.MinUDPSize, wire.MaxUDPReply))
	b.Handle(&Bufsize{uint16(size)})
	return err
}

// AnyClass lets bufsize see queries of every class. It answers none.
func (*Bufsize) AnyClass() bool { return false }

// RepeatableDNS reports that equal queries have the same limit.
func (*Bufsize) RepeatableDNS(*dns.Query) bool { return true }

// ServeDNS sets the limit.
func (b *Bufsize) ServeDNS(q *dns.Query) dns.Verdict {
	q.UDPSize = min(q.UDPSize, b.size)
	q.UDPLimit = b.size
	return dns.Next
}
