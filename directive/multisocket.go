package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/cgroup"
)

// A Multisocket is the number of UDP sockets of each address. Blocks that share
// an address share the first number that is given.
type Multisocket struct{ sockets int }

// Sockets returns the number.
func (m *Multisocket) Sockets() int { return m.sockets }

// SetupMultisocket sets up the multisocket directive, which sets the number of
// UDP sockets.
//
//	multisocket [N]
//
// The server opens N UDP sockets for each address of the server block (1 to
// 1024) with one reader each, and the kernel distributes clients over them. The
// default for N, and the number without the directive, is the number of CPUs
// that the process may use, by its CPU limit, too; so you rarely need multisocket. Without the
// directive the command node has one. TCP always has one socket.
//
// Of the server blocks that listen on the same address, the first with
// multisocket decides. An address that stays open over a reload keeps its number
// of sockets, since closing a socket would lose the queries in its buffer; the
// server logs a warning, and a restart applies the new number.
//
//	.:1053 {
//	    multisocket 2
//	    whoami
//	}
//
// Same as CoreDNS: syntax and default. Differs: the default also applies
// without the directive, and is 1 if the CPU limit is below one CPU; on systems other than Linux all readers share one
// socket.
func SetupMultisocket(b *config.Block, uses []corefile.Directive) error {
	m := &Multisocket{cgroup.Processors()}
	b.Offer(m)
	return oneArgument(uses, 0, corefile.Int(&m.sockets, 1, 1024))
}
