package directive

import (
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
)

// Cancel limits how long a query may wait: the cancel directive. Its reference page is
// docs/reference/directives/cancel.md.
type Cancel struct{ timeout time.Duration }

// SetupCancel sets up the cancel directive.
func SetupCancel(b *config.Block, uses []corefile.Directive) error {
	c := &Cancel{5001 * time.Millisecond}
	b.Handle(c)
	return config.OneArgument(uses, 0, corefile.Duration(&c.timeout, time.Millisecond, time.Hour))
}

// Repetition reports that the time limit does not change an answer from the cache.
func (*Cancel) Repetition() dns.Repetition { return dns.Repetition{} }

// ServeDNS sets how long q may wait.
func (c *Cancel) ServeDNS(q *dns.Query) dns.Verdict {
	q.Timeout = c.timeout
	return dns.Next
}
