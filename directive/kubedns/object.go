package kubedns

import (
	"context"
	"log/slog"
	"sync"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/internal/kubednsconfig"
	"github.com/seamark/seamark/metrics"
)

// An Object is the ConfigMap that Options.ConfigMap names, in a cluster. It watches
// this object alone. A missing object is the default Config.
type Object struct {
	Options cluster.Options // have passed their Check
	Log     *slog.Logger
	Metrics *metrics.Registry
	Check   func(kubednsconfig.Config) error // as in Directory
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
	received := &sink{changed: make(chan struct{}, 1)}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { sources.Run(ctx, o.Options, received, o.Log, o.Metrics) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-received.changed:
			s.update(received.current(), nil)
		}
	}
}

// A sink is the cluster.Sink of the watch. It stores the last state, so that the watch
// never blocks.
type sink struct {
	changed chan struct{} // of capacity 1
	mu      sync.Mutex
	key     cluster.Key // zero if the object does not exist
	data    map[string]string
}

func (s *sink) current() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data
}

// Put stores the object.
func (s *sink) Put(_ cluster.Kind, objects ...cluster.Object) {
	for _, o := range objects {
		if o, ok := o.(*cluster.ConfigMap); ok {
			s.set(o.Key(), o.Data)
		}
	}
}

// Delete restores the default.
func (s *sink) Delete(cluster.Kind, cluster.Key) { s.set(cluster.Key{}, nil) }

// Listed restores the default if the object is not in the list.
func (s *sink) Listed(_ cluster.Kind, has func(cluster.Key) bool) {
	s.mu.Lock()
	key := s.key
	s.mu.Unlock()
	if key == (cluster.Key{}) || !has(key) {
		s.set(cluster.Key{}, nil)
	}
}

func (s *sink) set(key cluster.Key, data map[string]string) {
	s.mu.Lock()
	s.key, s.data = key, data
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default: // Run has not handled the last change yet
	}
}
