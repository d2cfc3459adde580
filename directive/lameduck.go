package directive

import (
	"context"
	"log/slog"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/clock"
)

// Lameduck delays a shutdown while the server keeps answering: the lameduck directive. Its
// reference page is docs/reference/directives/lameduck.md.
type Lameduck struct {
	duration time.Duration
	log      *slog.Logger
}

// SetupLameduck sets up the lameduck directive.
func SetupLameduck(b *config.Block, uses []corefile.Directive) error {
	l := &Lameduck{log: b.Log}
	b.Offer(l)
	b.OnShutdown(l.wait)
	return config.OneArgument(uses, 1, l.read)
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
	clock.Sleep(ctx, l.duration)
}
