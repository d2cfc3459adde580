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

// SetupTimeouts sets up the timeouts directive, which limits how long TCP
// clients may take.
//
//	timeouts {
//	    read DURATION
//	    write DURATION
//	    idle DURATION
//	    maxtcpqueries N
//	}
//
// Give at least one option. DURATION is 1s to 24h. A number without a unit is
// in seconds.
//
//	read           time to receive a whole message after its first byte, 3s by default
//	write          time for the client to accept pending replies, 5s by default
//	idle           time without a query on a connection, 10s by default
//	maxtcpqueries  number of queries after which a connection is closed, once they
//	               are answered; -1, the default, means no limit
//
// The server closes connections that exceed a limit. Those closed during a
// message are counted in seamark_transport_connections_closed_total{why}.
//
// Server blocks that listen on the same address share the values of the first
// one. A reload changes the limits of open connections too.
//
//	.:1053 {
//	    timeouts {
//	        read 2s
//	        idle 30s
//	        maxtcpqueries 1000
//	    }
//	    whoami
//	}
//
// Same as CoreDNS: options and defaults. Differs: read limits the time for a
// whole message, not for each part of it, so a client that sends single bytes
// slowly is disconnected.
func SetupTimeouts(b *config.Block, uses []corefile.Directive) error {
	d, t := uses[0], new(Timeouts)
	duration := func(name string, limit *time.Duration) corefile.Option {
		return corefile.Option{Usage: name + " DURATION", Once: true, Set: func(o corefile.Directive) error {
			return corefile.Duration(limit, time.Second, 24*time.Hour)(inSeconds(o))
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
