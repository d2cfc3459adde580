package directive

import (
	"context"
	"errors"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A Lameduck lets the server go on answering for a while when it has been told to
// stop: the lameduck directive.
//
//	lameduck DURATION
//
// On SIGTERM or SIGINT the server goes on as before for DURATION, of 0s..1h, and
// stops then; a second signal ends it at once. A reload is no reason to wait.
//
// Kubernetes tells a pod to stop, and everybody else that its address is not to be
// used any more, at the same time. Until each node has taken the address out of its
// tables, which takes a second or some, queries go on coming here, and those that
// find nobody are lost: their clients wait for five seconds. DURATION must be
// shorter than the pod's terminationGracePeriodSeconds, 30 unless given, at whose
// end the process is killed.
//
//	.:1053 {
//	    lameduck 5s
//	    whoami
//	}
//
// Several server blocks wait at the same time, and the longest wait counts, as it
// does with the option of that name in health, which is the same.
//
// Ours: CoreDNS has the option of health alone, which needs a listener.
type Lameduck struct{ wait time.Duration }

// SetupLameduck is the Setup of lameduck.
func SetupLameduck(b *config.Block, uses []corefile.Directive) error {
	l, d := &Lameduck{}, uses[0]
	err := errors.Join(config.Once(uses), d.Options())
	if wrong := d.Arity(1, 1); wrong != nil {
		return errors.Join(err, wrong)
	}
	b.OnShutdown(l.stay)
	return errors.Join(err, l.read(d))
}

// read sets the wait to the last argument of a directive or option.
func (l *Lameduck) read(d corefile.Directive) error {
	return corefile.Duration(&l.wait, 0, time.Hour)(d)
}

// stay returns when the server may stop.
func (l *Lameduck) stay(ctx context.Context) {
	select {
	case <-time.After(l.wait):
	case <-ctx.Done():
	}
}
