package directive

import (
	"errors"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
)

// A Cancel ends queries that take too long: the cancel directive.
//
//	cancel [TIMEOUT]
//
// A query that has waited for TIMEOUT (1ms to 1h, 5001ms unless given), be it
// for an upstream or for anything else, is given up and answered with SERVFAIL.
// The default is a little longer than the five seconds after which stub
// resolvers ask again. Without the directive queries wait for ten seconds at
// most.
//
//	.:1053 {
//	    cancel 2s
//	    whoami
//	}
//
// Same as CoreDNS: syntax and default. Differs: a query that nobody waits for any
// more ends without the directive, too.
type Cancel struct{ after time.Duration }

// SetupCancel is the Setup of cancel.
func SetupCancel(b *config.Block, uses []corefile.Directive) error {
	c, d := &Cancel{5001 * time.Millisecond}, uses[0]
	err := errors.Join(config.Once(uses), d.Arity(0, 1), d.Options())
	if len(d.Args) == 1 {
		err = errors.Join(err, corefile.Duration(&c.after, time.Millisecond, time.Hour)(d))
	}
	b.Handle(c)
	return err
}

// ServeDNS says how long q may wait, if it comes to that.
func (c *Cancel) ServeDNS(q *dns.Query) dns.Verdict {
	q.Timeout = c.after
	return dns.Next
}
