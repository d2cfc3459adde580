package kubedns

import (
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/internal/kubednsconfig"
	"github.com/seamark/seamark/metrics"
)

// patience is how long the first state of a ConfigMap in a cluster is waited for.
const patience = 5 * time.Second

// A Follower reads a Corefile, puts into its blocks what the ConfigMaps that they
// name say now, and tells when that is something else. It watches them from the
// first Read that finds them to the first that does not, or to Stop.
type Follower struct {
	Base    func() corefile.Reading
	Log     *slog.Logger
	Metrics *metrics.Registry
	// Check, if there is one, says whether server blocks can be served. A ConfigMap
	// that they cannot be served with is refused.
	Check func([]corefile.Server) error

	changed chan struct{} // has room for one
	mu      sync.Mutex
	watched map[source]*watched
}

// NewFollower follows the Corefile that base reads.
func NewFollower(base func() corefile.Reading, log *slog.Logger, reg *metrics.Registry) *Follower {
	return &Follower{Base: base, Log: log, Metrics: reg, changed: make(chan struct{}, 1), watched: map[source]*watched{}}
}

// Changed gets a value after a change of a ConfigMap: it is time to Read.
func (f *Follower) Changed() <-chan struct{} { return f.changed }

// Read gives the Corefile as it is now, with the ConfigMaps in it. It waits for
// one that is new for up to five seconds.
func (f *Follower) Read() corefile.Reading {
	r := f.Base()
	wanted := map[source]bool{}
	r = replace(r, func(u use) kubednsconfig.Config {
		wanted[u.source] = true
		return f.follow(u.source).first(f.Log)
	})
	wrong := slices.ContainsFunc(r.Servers, func(s corefile.Server) bool {
		_, at, ok := uses(s)
		return at >= 0 && !ok
	})
	if r.Err == nil && !wrong { // otherwise the old configuration goes on, and its ConfigMaps with it
		f.forget(func(s source) bool { return !wanted[s] })
	}
	return r
}

// Stop ends all watches.
func (f *Follower) Stop() { f.forget(func(source) bool { return true }) }

func (f *Follower) follow(s source) *watched {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.watched[s]
	if w != nil {
		return w
	}
	ctx, cancel := context.WithCancel(context.Background())
	w = &watched{source: s, cancel: cancel, known: make(chan struct{})}
	f.watched[s] = w
	w.task.Go(func() {
		s.run(ctx, f.Log, f.Metrics, func(c kubednsconfig.Config) error { return f.try(s, c) }, func(c kubednsconfig.Config) {
			w.set(c)
			select {
			case f.changed <- struct{}{}:
			default: // it is known already
			}
		})
	})
	return w
}

// try says what is wrong with the Corefile if a source gives c, unless that is
// wrong without it.
func (f *Follower) try(s source, c kubednsconfig.Config) error {
	r := f.Base()
	if f.Check == nil || r.Err != nil {
		return nil
	}
	with := func(c kubednsconfig.Config) error {
		return f.Check(replace(r, func(u use) kubednsconfig.Config {
			if u.source == s {
				return c
			}
			return f.current(u.source)
		}).Servers)
	}
	err := with(c)
	if err != nil && with(f.current(s)) == nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")) // for one line
	}
	return nil
}

// current is the state of a source; the default if there is none.
func (f *Follower) current(s source) kubednsconfig.Config {
	f.mu.Lock()
	w := f.watched[s]
	f.mu.Unlock()
	if w == nil {
		return kubednsconfig.Config{}
	}
	return w.now()
}

func (f *Follower) forget(gone func(source) bool) {
	var ended []*watched
	f.mu.Lock()
	for s, w := range f.watched {
		if gone(s) {
			ended = append(ended, w)
			delete(f.watched, s)
		}
	}
	f.mu.Unlock()
	for _, w := range ended { // which may ask for the state of others meanwhile
		w.cancel()
		w.task.Wait()
	}
}

// run follows the source until ctx ends.
func (s source) run(ctx context.Context, log *slog.Logger, reg *metrics.Registry, check func(kubednsconfig.Config) error, apply func(kubednsconfig.Config)) {
	if s.dir != "" {
		Directory{Path: s.dir, Period: s.period, Log: log, Metrics: reg, Check: check}.Run(ctx, apply)
		return
	}
	Object{Options: s.object, Log: log, Metrics: reg, Check: check}.Run(ctx, apply)
}

// A watched is a source that is followed.
type watched struct {
	source source
	cancel context.CancelFunc
	task   sync.WaitGroup
	known  chan struct{} // closed once there is a state
	told   bool          // that there is none

	mu     sync.Mutex
	config kubednsconfig.Config
}

func (w *watched) set(c kubednsconfig.Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.config = c
	select {
	case <-w.known:
	default:
		close(w.known)
	}
}

// first gives the state, or the default if there is none in time.
func (w *watched) first(log *slog.Logger) kubednsconfig.Config {
	wait := patience
	if w.told {
		wait = 0
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case <-w.known:
	case <-timeout.C:
		if !w.told {
			log.Warn(fmt.Sprintf("kubedns %s%s: not seen within %v: the defaults hold until it is", w.source.dir, w.source.object.ConfigMap, patience))
		}
		w.told = true
	}
	return w.now()
}

func (w *watched) now() kubednsconfig.Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.config
}

// replace expands every block that names a ConfigMap, and makes what they say part
// of the Sum.
func replace(r corefile.Reading, config func(use) kubednsconfig.Config) corefile.Reading {
	h := sha512.New()
	_, _ = h.Write(r.Sum[:]) // a hash's Write never fails
	some := false
	servers := make([]corefile.Server, len(r.Servers))
	for i, s := range r.Servers {
		servers[i] = s
		if u, at, ok := uses(s); ok {
			some = true
			c := config(u)
			servers[i] = u.expand(s, at, c)
			_, _ = io.WriteString(h, fmt.Sprintf("%d %+v\n", i, c))
		}
	}
	r.Servers = servers
	if some && r.Sum != (corefile.Sum{}) {
		h.Sum(r.Sum[:0])
	}
	return r
}

// ExpandOnce returns r with the current ConfigMaps in place of kubedns_config. It
// reads those in directories; a ConfigMap in a cluster counts as the default.
func ExpandOnce(r corefile.Reading) corefile.Reading {
	return replace(r, func(u use) kubednsconfig.Config {
		if u.dir == "" {
			return kubednsconfig.Config{}
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var found kubednsconfig.Config
		u.source.run(ctx, slog.New(slog.DiscardHandler), new(metrics.Registry), nil, func(c kubednsconfig.Config) {
			found = c
			cancel()
		})
		return found
	})
}
