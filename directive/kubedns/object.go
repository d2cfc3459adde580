package kubedns

import (
	"context"
	"log/slog"
	"sync"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
)

// An Object is the ConfigMap that Options.ConfigMap names, in a cluster. It watches
// this object alone. A missing object is the default Config.
type Object struct {
	Options cluster.Options // have passed their Check
	Log     *slog.Logger
	Metrics *metrics.Registry
	Check   func(kubednsconfig.Config) error // as in Directory

	begun func(*state) // called by Run; may be nil
}

// Run calls apply with the first state, once the API server has returned it, and then
// with each valid state that differs from the last one, until ctx ends. If the first
// state is invalid it applies the default. While the API server is unavailable the
// last state remains. Calls do not overlap; of several changes during a call, Run
// applies the last.
func (o Object) Run(ctx context.Context, apply func(kubednsconfig.Config)) {
	s, unregister := newState(o.Options.ConfigMap, o.Log, o.Metrics, apply)
	s.check = o.Check
	defer unregister()
	if o.begun != nil {
		o.begun(s)
	}

	// The watch must not block: it leaves the last state for the loop below.
	last, changed := follow.NewValue[map[string]string](nil), follow.NewSignal()
	set := func(data map[string]string) {
		last.Set(data)
		changed.Send()
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { sources.Run(ctx, o.Options, &cluster.ConfigMapSink{Set: set}, o.Log, o.Metrics, nil, nil) })

	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			s.update(last.Get(), nil)
		}
	}
}
