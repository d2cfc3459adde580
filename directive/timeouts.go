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

// MaxTCPQueries returns the number of queries after which a connection is closed;
// zero is no limit.
func (t *Timeouts) MaxTCPQueries() int { return t.queries }

// SetupTimeouts says how long TCP clients may take: the timeouts directive.
//
//	timeouts {
//	    read DURATION
//	    write DURATION
//	    idle DURATION
//	    maxtcpqueries N
//	}
//
// At least one of them must be given; each DURATION is 1s to 24h, and a
// number without a unit is seconds.
//
// read is for the whole of one message once its first byte has come, 3s unless
// given; write for a client to take replies that are ready, 5s; idle for a
// connection on which nothing has come and nothing is under way, 10s. Whoever
// takes longer is disconnected; those that were slow in the middle of something
// are counted in seamark_transport_connections_closed_total{why}.
//
// maxtcpqueries closes a connection when N queries have come by it and have been
// answered. Unless given it is never closed for that.
//
// Server blocks that listen on one address share what the first of them gives.
// A reload with other values changes them for the connections that are open,
// too.
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
// Same as CoreDNS: options and defaults. Differs: read is for a message and not
// for each of its pieces, so that a client which sends a byte now and then is
// not waited for.
func SetupTimeouts(b *config.Block, uses []corefile.Directive) error {
	d, t := uses[0], new(Timeouts)
	duration := func(name string, of *time.Duration) corefile.Option {
		return corefile.Option{Name: name, Min: 1, Max: 1, Once: true, Set: func(o corefile.Directive) error {
			return corefile.Duration(of, time.Second, 24*time.Hour)(inSeconds(o))
		}}
	}
	err := errors.Join(config.Once(uses), d.Arity(0, 0), d.Options(
		duration("read", &t.read), duration("write", &t.write), duration("idle", &t.idle),
		corefile.Option{Name: "maxtcpqueries", Min: 1, Max: 1, Once: true, Set: corefile.Int(&t.queries, 1, math.MaxInt32)},
	))
	b.Offer(t)
	if len(d.Body) == 0 {
		err = errors.Join(err, d.Errorf("want at least one of read, write, idle and maxtcpqueries in braces"))
	}
	return err
}
