package forward

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seamark/seamark/corefile"
)

const (
	// lookEvery is how often files are read, where nobody tells of a change: a
	// file that is mounted alone into a container tells nothing.
	lookEvery = 5 * time.Second
	// resolveEvery is how often names of hosts are looked up, and resolveSoon
	// how often those that have no address yet.
	resolveEvery = 30 * time.Second
	resolveSoon  = time.Second
	// resolveFirst takes its place as long as a follower is young, in which nothing
	// is said either: who is asked may be this server itself, as it starts.
	resolveFirst = 100 * time.Millisecond
	young        = 2 * time.Second
	// resolveTime is how long a look-up may take, that at the start too.
	resolveTime = 2 * time.Second
)

var errNoLine = errors.New("no nameserver line")

// A follower keeps the upstreams up to date with the files and the names of
// hosts that were given. One goroutine owns it. What cannot be read, or has
// nothing in it, changes nothing.
type follower struct {
	set      *upstreams
	found    [][]netip.Addr // by place
	resolved []time.Time    // by place
	told     map[string]bool
	began    time.Time
	have     []target
}

func newFollower(s *upstreams) *follower {
	n := len(s.options.to)
	return &follower{set: s, found: make([][]netip.Addr, n), resolved: make([]time.Time, n), told: map[string]bool{}, began: time.Now()}
}

// run looks again and again.
func (f *follower) run() {
	every, files := time.Duration(0), false
	for _, p := range f.set.options.to {
		files = files || p.file != ""
		if p.file != "" {
			every = lookEvery
		}
		if p.host != "" {
			every = resolveFirst
		}
	}
	if every == 0 {
		return
	}
	var events chan fsnotify.Event
	var faults chan error // the watcher stands still until they are read
	if w, err := fsnotify.NewWatcher(); err == nil && files {
		defer func() { _ = w.Close() }()
		events, faults = w.Events, w.Errors
		for _, p := range f.set.options.to {
			if p.file != "" {
				_ = w.Add(filepath.Dir(p.file)) // else there is the clock
			}
		}
	} else if err == nil {
		_ = w.Close()
	}
	clock := time.NewTicker(every)
	defer clock.Stop()
	f.look(f.set.ctx) // what has changed before somebody watched
	for {
		select {
		case <-f.set.ctx.Done():
			return
		case <-clock.C:
			if every == resolveFirst && f.soon() == resolveSoon {
				every = resolveSoon
				clock.Reset(every)
			}
		case <-events:
		case <-faults:
		}
		f.look(f.set.ctx)
	}
}

// look reads the files, looks up the names whose time has come, and tells the
// set.
func (f *follower) look(ctx context.Context) {
	for i, p := range f.set.options.to {
		switch {
		case p.file != "":
			text, err := corefile.Text(p.file)
			addrs := parseResolvConf(text)
			if err == nil && len(addrs) == 0 {
				err = errNoLine
			}
			f.learn(i, p.file, addrs, err)
		case p.host != "":
			if since := time.Since(f.resolved[i]); since < f.soon() || since < resolveEvery && len(f.found[i]) > 0 {
				continue
			}
			f.resolved[i] = time.Now()
			limited, cancel := context.WithTimeout(ctx, resolveTime)
			addrs, err := f.set.resolver.LookupNetIP(limited, "ip", p.host)
			cancel()
			for i, a := range addrs {
				addrs[i] = a.Unmap()
			}
			slices.SortFunc(addrs, netip.Addr.Compare) // resolvers turn them
			f.learn(i, p.host, slices.Compact(addrs), err)
		}
	}
	now := f.set.targets(f.found)
	if slices.Equal(now, f.have) {
		return
	}
	if f.have != nil {
		f.set.log.Info("forward: upstreams have changed", "upstreams", now)
	}
	f.have = now
	f.set.become(now)
}

// soon is how long to wait for a name that has no address yet.
func (f *follower) soon() time.Duration {
	if time.Since(f.began) < young {
		return resolveFirst
	}
	return resolveSoon
}

// learn keeps what a place has now. It warns once of each thing that goes
// wrong.
func (f *follower) learn(i int, name string, addrs []netip.Addr, err error) {
	if err == nil && len(addrs) > 0 {
		f.found[i] = addrs
		delete(f.told, name)
		return
	}
	if f.set.ctx.Err() != nil || f.told[name] || f.set.options.to[i].host != "" && time.Since(f.began) < young {
		return
	}
	f.told[name] = true
	what := "forward: no upstream found: the last known ones stay"
	if len(f.found[i]) == 0 {
		what = "forward: no upstream found: nobody is asked until there is one"
	}
	f.set.log.Warn(what, "in", name, "error", err)
}
