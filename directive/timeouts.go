package directive

import (
	"errors"
	"math"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// Timeouts are the limits of the block's TCP connections. Zero is the server's
// default. Blocks that share an address share the first limit of each kind.
type Timeouts struct {
	read, write, idle time.Duration
	queries           int // per connection
}

// ConnectionTimeouts returns the timeouts.
func (t *Timeouts) ConnectionTimeouts() (read, write, idle time.Duration) {
	return t.read, t.write, t.idle
}

// MaxTCPQueries returns the number of queries after which a connection is closed.
// Zero means no limit.
func (t *Timeouts) MaxTCPQueries() int { return t.queries }

// SetupTimeouts sets up the timeouts directive, which limits how long TCP clients may take.
// Its reference page is docs/reference/directives/timeouts.md.
func SetupTimeouts(b *config.Block, uses []corefile.Directive) error {
	d, t := uses[0], new(Timeouts)
	duration := func(name string, limit *time.Duration) corefile.Option {
		return corefile.Option{Usage: name + " DURATION", Once: true, Set: func(o corefile.Directive) error {
			return corefile.Duration(limit, time.Second, 24*time.Hour)(config.InSeconds(o))
		}}
	}
	maxQueries := func(o corefile.Directive) error {
		if o.Args[0].Text == "-1" {
			t.queries = 0
			return nil
		}
		return corefile.Int(&t.queries, 1, math.MaxInt32)(o)
	}

	err := errors.Join(config.Once(uses), d.Arity(0, 0), d.Options(
		duration("read", &t.read), duration("write", &t.write), duration("idle", &t.idle),
		corefile.Option{Usage: "maxtcpqueries N", Once: true, Set: maxQueries},
	))
	b.Offer(t)
	if len(d.Body) == 0 {
		err = errors.Join(err, d.Errorf("want at least one of read, write, idle and maxtcpqueries in braces"))
	}
	return err
}
