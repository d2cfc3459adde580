package forward

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/internal/watch"
)

const (
	// pollInterval is how often files are read if the file system reports no
	// changes, as for a single file mounted into a container.
	pollInterval = 5 * time.Second
	// Host names are looked up every resolveInterval, and every resolveRetry as
	// long as they have no address.
	resolveInterval = 30 * time.Second
	resolveRetry    = time.Second
	// During the startPhase, failed lookups are not logged and repeated every
	// resolveRetryAtStart: the resolver may be this server itself.
	resolveRetryAtStart = 100 * time.Millisecond
	startPhase          = 2 * time.Second
	// resolveTimeout is the timeout of a lookup, also of the first.
	resolveTimeout = 2 * time.Second
)

var errNoNameserver = errors.New("no nameserver line")

// An updater keeps the set's upstreams up to date with the files and host names
// of its destinations. A file that is unreadable or empty, and a failed lookup,
// change nothing. One goroutine owns it.
type updater struct {
	set      *upstreamSet
	addrs    [][]netip.Addr // by destination
	resolved []time.Time    // the time of the last lookup, by destination
	warned   map[string]bool
	started  time.Time
	current  []target
}

func newUpdater(s *upstreamSet) *updater {
	n := len(s.options.destinations)
	return &updater{set: s, addrs: make([][]netip.Addr, n), resolved: make([]time.Time, n), warned: map[string]bool{}, started: time.Now()}
}

// run updates the set until its context ends.
func (f *updater) run() {
	ctx := f.set.ctx
	var files []string
	var lookups <-chan time.Time
	interval := resolveRetryAtStart
	clock := time.NewTicker(interval)
	defer clock.Stop()
	for _, d := range f.set.options.destinations {
		switch {
		case d.file != "":
			files = append(files, d.file)
		case d.host != "":
			lookups = clock.C
		}
	}
	if files == nil && lookups == nil {
		return
	}
	changed := make(chan struct{}, 1)
	if files != nil {
		w := watch.New(files, watch.Options{Poll: pollInterval, Log: f.set.log})
		f.set.spawn(func() {
			defer w.Close()
			w.Run(ctx, changed)
		})
	}
	f.update(ctx) // for changes before the watch began
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-lookups:
			if next := f.retryInterval(); next != interval {
				interval = next
				clock.Reset(interval)
			}
		}
		f.update(ctx)
	}
}

// update reads the files, looks up the host names that are due, and passes the
// addresses to the set.
func (f *updater) update(ctx context.Context) {
	for i, p := range f.set.options.destinations {
		switch {
		case p.file != "":
			text, err := corefile.Text(p.file)
			addrs := parseResolvConf(text)
			if err == nil && len(addrs) == 0 {
				err = errNoNameserver
			}
			f.setAddrs(i, p.file, addrs, err)
		case p.host != "":
			if since := time.Since(f.resolved[i]); since < f.retryInterval() || since < resolveInterval && len(f.addrs[i]) > 0 {
				continue
			}
			f.resolved[i] = time.Now()
			limited, cancel := context.WithTimeout(ctx, resolveTimeout)
			addrs, err := f.set.resolver.LookupNetIP(limited, "ip", p.host)
			cancel()
			for i, a := range addrs {
				addrs[i] = a.Unmap()
			}
			slices.SortFunc(addrs, netip.Addr.Compare) // resolvers rotate addresses
			f.setAddrs(i, p.host, slices.Compact(addrs), err)
		}
	}
	now := f.set.targets(f.addrs)
	if slices.Equal(now, f.current) {
		return
	}
	if f.current != nil {
		f.set.log.Info("forward: Upstreams changed", "upstreams", now)
	}
	f.current = now
	f.set.setTargets(now)
}

// retryInterval returns the time after which to repeat a failed lookup.
func (f *updater) retryInterval() time.Duration {
	if time.Since(f.started) < startPhase {
		return resolveRetryAtStart
	}
	return resolveRetry
}

// setAddrs stores the addresses of a destination. It logs the first of several
// failures in a row.
func (f *updater) setAddrs(i int, name string, addrs []netip.Addr, err error) {
	if err == nil && len(addrs) > 0 {
		f.addrs[i] = addrs
		delete(f.warned, name)
		return
	}
	if f.set.ctx.Err() != nil || f.warned[name] || f.set.options.destinations[i].host != "" && time.Since(f.started) < startPhase {
		return
	}
	f.warned[name] = true
	if len(f.addrs[i]) == 0 {
		f.set.log.Warn("forward: No upstream address found, no queries are sent", "source", name, "error", err)
	} else {
		f.set.log.Warn("forward: No upstream address found, using the last ones", "source", name, "error", err)
	}
}
