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

// SetupReload sets up the reload directive, which applies changes of the
// Corefile while the server runs.
//
//	reload [INTERVAL [JITTER]]
//	reload off
//
// The server reads its Corefile again every INTERVAL, plus a random part of
// JITTER. If the text has changed, it applies the new Corefile. INTERVAL is at
// least 2s, 30s by default. JITTER is 0s or at least 1s, 15s by default, and
// limited to half of INTERVAL. A number without a unit is in seconds.
//
// The server also reads all imported files, and evaluates the patterns of
// imports again. Only the text counts: an update of a mounted ConfigMap, which
// replaces symbolic links, is noticed, and a file whose modification time alone
// has changed is not. Changed addresses of an interface in bind are a change, too.
//
// A reload loses no query. The old configuration answers until the new one is
// ready, addresses that both listen on stay open, and the new configuration
// takes over the cluster's data, caches, counters and connections to upstreams
// that both use. The log shows
//
//	[INFO] Reloading
//	[INFO] plugin/reload: Running configuration SHA512 = 3d5f...
//	[INFO] Reloading complete
//
// If the new Corefile has errors, the old configuration stays in use. The
// server logs every error once, increments a counter, and tries again when the
// text changes. SIGHUP and SIGUSR1 make the server read the Corefile at once,
// with or without this directive.
//
// reload applies to the whole server: give it in one server block. If several
// have it, the shortest INTERVAL applies. reload off is the same as no reload
// directive.
//
//	coredns_reload_failed_total              Corefiles that could not be applied
//	coredns_reload_version_info{hash, value} always 1; hash is sha512, value the hash
//	                                         of the Corefile in use
//
// The value for a Corefile without imports is the output of sha512sum.
//
//	.:1053 {
//	    reload 10s 5s
//	    whoami
//	}
//
// Same as CoreDNS: syntax, limits, metrics and lines. Differs: value is
// computed from the texts; a Corefile with unbalanced braces is logged once,
// not at each check, and is counted too.
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
