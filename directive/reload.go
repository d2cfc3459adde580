package directive

import (
	"errors"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A Reload makes the server check the Corefile for changes.
type Reload struct{ interval, jitter time.Duration }

// CorefileChecks returns the interval between two checks, and the limit of the
// random time that is added to it.
func (r *Reload) CorefileChecks() (interval, jitter time.Duration) { return r.interval, r.jitter }

// SetupReload sets up the reload directive, which applies changes of the Corefile while the
// server runs. Its reference page is docs/reference/directives/reload.md.
func SetupReload(b *config.Block, uses []corefile.Directive) error {
	const year = 365 * 24 * time.Hour
	d := uses[0]
	if err := errors.Join(config.Once(uses), d.Arity(0, 2), d.Options()); err != nil {
		return err
	}
	if len(d.Args) == 1 && d.Args[0].Text == "off" {
		return nil
	}

	r := &Reload{interval: 30 * time.Second, jitter: 15 * time.Second}
	var errs []error
	jitter := corefile.Duration(&r.jitter, time.Second, year)
	if len(d.Args) == 2 && (d.Args[1].Text == "0" || d.Args[1].Text == "0s") {
		jitter = corefile.Duration(&r.jitter, 0, 0)
	}
	interval := corefile.Duration(&r.interval, 2*time.Second, year)
	for i, set := range []func(corefile.Directive) error{interval, jitter} {
		if i < len(d.Args) {
			arg := d
			arg.Args = d.Args[i : i+1]
			errs = append(errs, set(config.InSeconds(arg)))
		}
	}

	r.jitter = min(r.jitter, r.interval/2)
	b.Offer(r)
	return errors.Join(errs...)
}
