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
// When Kubernetes ends a pod, it sends the signal and removes the pod's address
// from the Service at the same time. Nodes take a second or more to apply this.
// Queries that reach the address in the meantime are lost if the server has
// stopped, and their clients wait for five seconds. DURATION must be shorter
// than the pod's terminationGracePeriodSeconds (30 by default), because
// Kubernetes kills the process after that.
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
	b.OnShutdown(l.wait)
	return oneArgument(uses, 1, l.read)
}

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
