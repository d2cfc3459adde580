package directive

import (
	"context"
	"log/slog"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// Lameduck delays a shutdown while the server keeps answering: the lameduck
// directive.
//
//	lameduck DURATION
//
// Use lameduck so that no query is lost when a pod ends. On SIGTERM or SIGINT
// the server continues to answer for DURATION, 0s to 1h, and then stops. A
// second signal stops it at once. A reload does not wait.
//
// After DURATION the server continues to answer until no query has arrived for a
// second, at most for DURATION again and for 10s. So clients that learn late of
// the shutdown lose no query either.
//
// When Kubernetes ends a pod, it sends the signal and removes the pod's address
// from the Service at the same time. Nodes take a second or more to apply this.
// Queries that reach the address in the meantime are lost if the server has
// stopped, and their clients wait for five seconds. Kubernetes kills the process
// after terminationGracePeriodSeconds (30 by default): twice DURATION and five
// seconds for waiting queries must be shorter.
//
//	.:1053 {
//	    lameduck 5s
//	    whoami
//	}
//
// If several server blocks have lameduck, or the option of that name in health,
// which does the same, the longest DURATION applies. The server logs the start
// of the wait.
//
// Ours: CoreDNS only has the option of health, which needs a listener.
type Lameduck struct {
	duration time.Duration
	log      *slog.Logger
}

// SetupLameduck sets up the lameduck directive.
func SetupLameduck(b *config.Block, uses []corefile.Directive) error {
	l := &Lameduck{log: b.Log}
	b.Offer(l)
	b.OnShutdown(l.wait)
	return oneArgument(uses, 1, l.read)
}

// Lameduck returns the duration.
func (l *Lameduck) Lameduck() time.Duration { return l.duration }

// read sets the duration to the last argument of a directive or option.
func (l *Lameduck) read(d corefile.Directive) error {
	return corefile.Duration(&l.duration, 0, time.Hour)(d)
}

// wait returns when the duration has passed or ctx ends.
func (l *Lameduck) wait(ctx context.Context) {
	if l.duration == 0 {
		return
	}
	l.log.Info("lameduck: Shutdown delayed, still answering queries", "duration", l.duration)
	select {
	case <-time.After(l.duration):
	case <-ctx.Done():
	}
}
