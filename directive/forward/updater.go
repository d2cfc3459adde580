package forward

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"net/netip"
	"slices"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/watch"
)

const (
	// pollInterval is how often files are read if the file system reports no
	// changes, as for a single file mounted into a container.
	pollInterval = 5 * time.Second
	// Host names are looked up every resolveInterval, and every resolveRetry as
	// long as they have no address, and after an upstream has failed.
	resolveInterval = 30 * time.Second
	resolveRetry    = time.Second
	// During startPhase, failed lookups are not logged, and they are repeated every
	// resolveRetryAtStart: the resolver may be this server itself.
	resolveRetryAtStart = 100 * time.Millisecond
	startPhase          = 2 * time.Second
	// resolveTimeout is the timeout of a lookup.
	resolveTimeout = 2 * time.Second
)

var errNoNameserver = errors.New("no nameserver line")

// An updater keeps the set's upstreams up to date with the files and host names of its
// destinations. As long as a file is unreadable or empty, or a lookup fails, the
// upstreams stay the same. One goroutine owns it.
type updater struct {
	set      *upstreamSet
	addrs    [][]netip.Addr  // by destination
	resolved []time.Time     // the time of the last lookup, by destination
	warned   map[string]bool // sources whose failure is logged
	started  time.Time
	urgent   bool         // an upstream has failed since the last lookup
	current  []upstreamID // of the set
}

func newUpdater(s *upstreamSet) *updater {
	n := len(s.options.destinations)
	return &updater{
		set: s, addrs: make([][]netip.Addr, n), resolved: make([]time.Time, n),
		warned: map[string]bool{}, started: time.Now(),
	}
}

// run updates the set until its context ends.
func (u *updater) run() {
	ctx := u.set.ctx
	interval := resolveRetryAtStart
	ticker := time.NewTicker(interval)
	defer ticker.Stop()

	var files []string
	var lookups <-chan time.Time
	for _, d := range u.set.options.destinations {
		switch {
		case d.file != "":
			files = append(files, d.file)
		case d.host != "":
			lookups = ticker.C
		}
	}
	if files == nil && lookups == nil {
		return
	}

	changed := make(chan struct{}, 1)
	if files != nil {
		w := watch.New(files, watch.Options{Poll: pollInterval, Log: u.set.log})
		follows := func() {
			defer w.Close()
			w.Run(ctx, changed)
		}
		if !u.set.spawn(follows) {
			w.Close()
		}
	}

	u.update(ctx) // a file may have changed before the watch began
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-u.set.failed:
			u.urgent = lookups != nil
		case <-lookups:
			if next := u.retryInterval(); next != interval {
				interval = next
				ticker.Reset(interval)
			}
		}
		u.update(ctx)
	}
}

// update reads the files, looks up the host names that are due, and passes the
// addresses to the set.
func (u *updater) update(ctx context.Context) {
	looked := false
	for i, d := range u.set.options.destinations {
		switch {
		case d.file != "":
			text, err := corefile.Text(d.file)
			addrs, _ := parseResolvConf(d.file, text)
			if err == nil && len(addrs) == 0 {
				err = errNoNameserver
			}
			u.setAddrs(i, d.file, addrs, err)
		case d.host != "" && u.lookupDue(i):
			u.resolved[i], looked = time.Now(), true
			addrs, err := u.lookUp(ctx, d.host)
			u.setAddrs(i, d.host, u.set.choose(addrs), err)
		}
	}
	u.urgent = u.urgent && !looked

	current := u.set.upstreamIDs(u.addrs)
	if slices.Equal(current, u.current) {
		return
	}
	if u.current != nil {
		u.set.log.Info("forward: Upstreams changed", "upstreams", current)
	}
	u.current = current
	u.set.setUpstreams(current)
}

// lookupDue reports whether the host name of destination i has to be looked up.
func (u *updater) lookupDue(i int) bool {
	since := time.Since(u.resolved[i])
	return since >= u.retryInterval() && (since >= resolveInterval || len(u.addrs[i]) == 0 || u.urgent)
}

// lookUp returns the addresses of a host.
func (u *updater) lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := u.set.resolver.LookupNetIP(ctx, "ip", host)
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	return addrs, err
}

// retryInterval returns the time after which to repeat a failed lookup.
func (u *updater) retryInterval() time.Duration {
	if time.Since(u.started) < startPhase {
		return resolveRetryAtStart
	}
	return resolveRetry
}

// setAddrs stores the addresses of a destination. It logs the first of several
// failures in a row.
func (u *updater) setAddrs(i int, name string, addrs []netip.Addr, err error) {
	if err == nil && len(addrs) > 0 {
		u.addrs[i] = addrs
		delete(u.warned, name)
		return
	}

	starting := u.set.options.destinations[i].host != "" && time.Since(u.started) < startPhase
	if u.set.ctx.Err() != nil || u.warned[name] || starting {
		return
	}
	u.warned[name] = true
	if len(u.addrs[i]) == 0 {
		u.set.log.Warn("forward: No upstream address found, no queries are sent", "source", name, "error", err)
	} else {
		u.set.log.Warn("forward: No upstream address found, using the last ones", "source", name, "error", err)
	}
}

// choose returns the addresses of a host name that become upstreams, in order. Of many it
// chooses some at random, so that the nodes of a cluster spread over all, and keeps most of
// its choice when the addresses change.
func (s *upstreamSet) choose(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare) // resolvers rotate addresses
	addrs = slices.Compact(addrs)
	room := max(1, maxUpstreams+1-len(s.options.destinations))
	if len(addrs) <= room {
		return addrs
	}

	slices.SortFunc(addrs, func(a, b netip.Addr) int {
		return cmp.Compare(maphash.Comparable(s.seed, a), maphash.Comparable(s.seed, b))
	})
	addrs = addrs[:room]
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}
