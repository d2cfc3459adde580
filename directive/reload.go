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

// CorefileChecks returns the interval between two checks, and the bound of the
// random time that is added to it.
func (r *Reload) CorefileChecks() (interval, jitter time.Duration) { return r.interval, r.jitter }

// SetupReload has the Corefile looked at for changes: the reload directive.
//
//	reload [INTERVAL [JITTER]]
//	reload off
//
// Every INTERVAL, 30s unless given (at least 2s), and a random part of JITTER
// more, 15s unless given (at least 1s, and cut to half of INTERVAL), the server
// reads its Corefile again, with every file that it imports and whatever the
// patterns of its imports match by then. If the text of any of them has changed,
// the server goes on with the new Corefile. Only what was read counts, so a
// ConfigMap's exchanged links are seen, and a file that was merely touched is
// not. A number without a unit is seconds.
//
// Nothing is lost on the way: the old configuration answers until the new one
// is ready to, addresses that both listen on stay open, and what both want (the
// cluster's data, caches, counters, connections to upstreams) is handed on. The
// log says
//
//	[INFO] Reloading
//	[INFO] plugin/reload: Running configuration SHA512 = 3d5f…
//	[INFO] Reloading complete
//
// A Corefile that cannot be read or used leaves the old one in place, is logged
// once with every line that is wrong, and counted. It is tried again when its
// text changes. SIGHUP and SIGUSR1 have the Corefile read at once, with this
// directive or without it.
//
// The directive is for the whole server: it is enough in one server block, and
// if several have it the shortest INTERVAL counts. reload off says the same as
// leaving it out.
//
//	coredns_reload_failed_total              Corefiles that were not taken
//	coredns_reload_version_info{hash, value} always 1; hash is sha512, value that of
//	                                         the Corefile that runs
//
// The value of a Corefile without imports is what sha512sum says of it.
//
//	.:1053 {
//	    reload 10s 5s
//	    whoami
//	}
//
// Same as CoreDNS: syntax, limits, metrics and lines. Differs: value is made from
// the texts; a Corefile whose braces are wrong is logged once and not at each
// look, and it is counted as well.
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
	for i, set := range []func(corefile.Directive) error{
		corefile.Duration(&r.interval, 2*time.Second, year), corefile.Duration(&r.jitter, time.Second, year),
	} {
		if i < len(d.Args) {
			one := d
			one.Args = d.Args[i : i+1]
			errs = append(errs, set(inSeconds(one)))
		}
	}
	r.jitter = min(r.jitter, r.interval/2)
	b.Offer(r)
	return errors.Join(errs...)
}

// inSeconds gives the number that is d's last argument the unit that CoreDNS
// takes it to have.
func inSeconds(d corefile.Directive) corefile.Directive {
	i := len(d.Args) - 1
	if _, err := strconv.ParseUint(d.Args[i].Text, 10, 32); err == nil {
		d.Args = slices.Clone(d.Args)
		d.Args[i].Text += "s"
	}
	return d
}
