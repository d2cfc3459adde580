package directive

import (
	"errors"
	"slices"
	"strconv"
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
	for i, set := range []func(corefile.Directive) error{corefile.Duration(&r.interval, 2*time.Second, year), jitter} {
		if i < len(d.Args) {
			arg := d
			arg.Args = d.Args[i : i+1]
			errs = append(errs, set(inSeconds(arg)))
		}
	}
	r.jitter = min(r.jitter, r.interval/2)
	b.Offer(r)
	return errors.Join(errs...)
}

// inSeconds returns d with the unit s added to its last argument if that is a
// plain number, as CoreDNS reads it.
func inSeconds(d corefile.Directive) corefile.Directive {
	i := len(d.Args) - 1
	if _, err := strconv.ParseUint(d.Args[i].Text, 10, 32); err == nil {
		d.Args = slices.Clone(d.Args)
		d.Args[i].Text += "s"
	}
	return d
}
