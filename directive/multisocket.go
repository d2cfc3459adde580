package directive

import (
	"errors"
	"runtime"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A Multisocket is the number of UDP sockets of each address. Blocks that share an
// address share the first number that is given.
type Multisocket struct{ sockets int }

// Sockets returns the number.
func (m *Multisocket) Sockets() int { return m.sockets }

// SetupMultisocket says how many sockets read queries: the multisocket
// directive.
//
//	multisocket [N]
//
// Each address of the server block has N sockets for UDP (1 to 1024), and a
// reader for each; the kernel spreads clients over them. N is the number of CPUs
// that the process may use unless it is given, and so it is without this
// directive: there is little to gain from it here. TCP has one socket, whatever
// N is.
//
// Server blocks that listen on one address share the first N that is given. An
// address that stays open over a reload keeps its number, since closing a socket
// would lose the queries that it holds; a warning says so, and a restart changes
// it.
//
//	.:1053 {
//	    multisocket 2
//	    whoami
//	}
//
// Same as CoreDNS: syntax and default. Differs: without the directive there are
// as many sockets as with it; elsewhere than on Linux the readers share one.
func SetupMultisocket(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	if err := errors.Join(config.Once(uses), d.Arity(0, 1), d.Options()); err != nil {
		return err
	}
	m := &Multisocket{runtime.GOMAXPROCS(0)}
	b.Offer(m)
	if len(d.Args) == 0 {
		return nil
	}
	return corefile.Int(&m.sockets, 1, 1024)(d)
}
