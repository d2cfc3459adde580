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

// SetupMultisocket sets up the multisocket directive, which sets the number of UDP sockets.
// Its reference page is docs/reference/directives/multisocket.md.
func SetupMultisocket(b *config.Block, uses []corefile.Directive) error {
	m := &Multisocket{cgroup.Processors()}
	b.Offer(m)
	return config.OneArgument(uses, 0, corefile.Int(&m.sockets, 1, 1024))
}
