package kubedns

import (
	"context"
	"crypto/sha512"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
)

// firstTimeout limits how long Read waits for the first state of a ConfigMap.
const firstTimeout = 5 * time.Second

// A Follower reads a Corefile with each kubedns_config expanded for the current state
// of its ConfigMap, and signals changes. It watches a ConfigMap from the first Read
// that finds it in the Corefile to the first that does not, or to Stop.
type Follower struct {
	Base    func() corefile.Reading
	Log     *slog.Logger
	Metrics *metrics.Registry
	// Check, unless nil, returns an error if the server cannot serve the blocks. The
	// Follower then refuses the ConfigMap.
	Check func([]corefile.Server) error

	changed follow.Signal
	mu      sync.Mutex
	watched map[Source]*watched
	sum     corefile.Sum // of the last Corefile that Read has read
}

// NewFollower returns a Follower for the Corefile that base reads.
func NewFollower(base func() corefile.Reading, log *slog.Logger, reg *metrics.Registry) *Follower {
	return &Follower{Base: base, Log: log, Metrics: reg, changed: follow.NewSignal(), watched: map[Source]*watched{}}
}

// Changed receives a value after a change of a ConfigMap. The caller then calls Read.
func (f *Follower) Changed() <-chan struct{} { return f.changed }

// Read returns the expanded Corefile. It waits up to five seconds for the first state
// of a ConfigMap.
func (f *Follower) Read() corefile.Reading {
	r := f.Base()
	f.mu.Lock()
	changed := r.Sum != f.sum
	f.sum = r.Sum
	f.mu.Unlock()

	used := map[Source]bool{}
	r = expandAll(r, func(u use) kubednsconfig.Config {
		used[u.Source] = true
		w := f.follow(u.Source)
		if changed && f.Check != nil && r.Err == nil {
			w.state.recheck(func(c kubednsconfig.Config) error { return f.check(f.Base(), u.Source, c) })
		}
		return w.First(firstTimeout, func() {
			f.Log.Warn("kube-dns's ConfigMap is not available yet, using the defaults",
				"configmap", u.name(), "duration", firstTimeout)
		})
	})
	invalid := slices.ContainsFunc(r.Servers, func(s corefile.Server) bool {
		_, at, ok := findUse(s)
		return at >= 0 && !ok
	})
	if r.Err == nil && !invalid { // else the server keeps the old Corefile with its ConfigMaps
		f.stop(func(s Source) bool { return !used[s] })
	}
	return r
}

// Stop ends all watches.
func (f *Follower) Stop() { f.stop(func(Source) bool { return true }) }

func (f *Follower) follow(s Source) *watched {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.watched[s]; w != nil {
		return w
	}

	w := &watched{Value: follow.NewValue(kubednsconfig.Config{})}
	check := func(c kubednsconfig.Config) error { return f.try(s, c) }
	apply := func(c kubednsconfig.Config) {
		w.Set(c)
		f.changed.Send()
	}
	to, unregister := newState(s.name(), f.Log, f.Metrics, check, apply)
	w.state = to
	w.Task = follow.Go(func(ctx context.Context) {
		defer unregister()
		s.run(ctx, to, f.Log, f.Metrics)
	})
	f.watched[s] = w
	return w
}

// try returns an error if c makes the Corefile unservable. If the Corefile is
// unservable anyway, it returns nil.
func (f *Follower) try(s Source, c kubednsconfig.Config) error {
	r := f.Base()
	if f.Check == nil || r.Err != nil {
		return nil
	}

	err := f.check(r, s, c)
	if err != nil && f.check(r, s, f.current(s)) == nil {
		return err
	}
	return nil
}

// check returns an error if the server cannot serve the Corefile with c.
func (f *Follower) check(r corefile.Reading, s Source, c kubednsconfig.Config) error {
	if r.Err != nil {
		return r.Err
	}
	return f.Check(expandAll(r, func(u use) kubednsconfig.Config {
		if u.Source == s {
			return c
		}
		return f.current(u.Source)
	}).Servers)
}

// current returns the Config of a source; the default if it is unknown.
func (f *Follower) current(s Source) kubednsconfig.Config {
	f.mu.Lock()
	w := f.watched[s]
	f.mu.Unlock()
	if w == nil {
		return kubednsconfig.Config{}
	}
	return w.Get()
}

// stop stops the watches of the sources for which match returns true.
func (f *Follower) stop(match func(Source) bool) {
	var ended []*watched
	f.mu.Lock()
	for s, w := range f.watched {
		if match(s) {
			ended = append(ended, w)
			delete(f.watched, s)
		}
	}
	f.mu.Unlock()

	for _, w := range ended { // without the lock: their Check may call current
		w.Stop()
	}
}

// A watched is the current Config of a source, and the task that follows the source.
type watched struct {
	*follow.Value[kubednsconfig.Config]
	*follow.Task
	state *state
}

// expandAll expands every kubedns_config of r and adds the Configs to its Sum.
func expandAll(r corefile.Reading, config func(use) kubednsconfig.Config) corefile.Reading {
	h := sha512.New()
	_, _ = h.Write(r.Sum[:]) // a hash's Write never fails
	found := false
	servers := make([]corefile.Server, len(r.Servers))
	for i, s := range r.Servers {
		servers[i] = s
		if u, at, ok := findUse(s); ok {
			found = true
			c := config(u)
			servers[i] = u.expand(s, at, c)
			_, _ = io.WriteString(h, fmt.Sprintf("%d %+v\n", i, c))
		}
	}

	r.Servers = servers
	if found {
		r.Unchanged = nil // a ConfigMap may have changed
	}
	if found && r.Sum != (corefile.Sum{}) {
		h.Sum(r.Sum[:0])
	}
	return r
}

// ExpandOnce returns r with the current ConfigMaps in place of kubedns_config. It
// reads ConfigMaps in directories; one in a cluster counts as the default.
func ExpandOnce(r corefile.Reading) corefile.Reading {
	return expandAll(r, func(u use) kubednsconfig.Config {
		if u.Dir == "" {
			return kubednsconfig.Config{}
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var found kubednsconfig.Config
		u.Run(ctx, slog.New(slog.DiscardHandler), new(metrics.Registry), nil, func(c kubednsconfig.Config) {
			found = c
			cancel()
		})
		return found
	})
}
