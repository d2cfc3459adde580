package kubedns

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
)

// A Source is the location of a ConfigMap: a directory or an object. A ConfigMap
// that is missing or empty is the default Config.
type Source struct {
	// Dir is a mounted ConfigMap, or a directory of the same form: each file is a
	// key, its content the value. Hidden files and subdirectories are ignored. All
	// files must be UTF-8, as in kube-dns. "" means Object.
	Dir    string
	Period time.Duration // poll interval of Dir, for file systems without events; 0: 10 s
	// Object names the ConfigMap in a cluster, and has passed its Check. This object
	// alone is watched.
	Object cluster.Options

	noEvents bool // poll only; for tests
}

func (s Source) name() string { return cmp.Or(s.Dir, s.Object.ConfigMap) }

// Run calls apply with the first state, at once or once the API server has returned
// it, and then with each valid state that differs from the last one, until ctx ends.
// If the first state is invalid it applies the default. While the API server is
// unavailable the last state remains. Calls do not overlap; of several changes during
// a call, Run applies the last. Check, unless nil, returns an error if the server
// cannot use a Config, which Run then refuses as if it were invalid.
func (s Source) Run(
	ctx context.Context, log *slog.Logger, reg *metrics.Registry,
	check func(kubednsconfig.Config) error, apply func(kubednsconfig.Config),
) {
	to, unregister := newState(s.name(), log, reg, check, apply)
	defer unregister()
	s.run(ctx, to, log, reg)
}

func (s Source) run(ctx context.Context, to *state, log *slog.Logger, reg *metrics.Registry) {
	if s.Dir != "" {
		s.runDirectory(ctx, to)
		return
	}

	// The watch must not block: it leaves the last state for the loop below.
	last, changed := follow.NewValue[map[string]string](nil), follow.NewSignal()
	set := func(data map[string]string) {
		last.Set(data)
		changed.Send()
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { sources.Run(ctx, s.Object, &cluster.ConfigMapSink{Set: set}, log, reg, nil, nil) })

	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			to.update(last.Get(), nil)
		}
	}
}
