package kubedns

import (
	"context"
	"log/slog"
	"sync"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/internal/kubednsconfig"
	"github.com/seamark/seamark/metrics"
)

// An Object is one ConfigMap in a cluster: the one that Options.ConfigMap names.
// No other is asked for or looked at. If there is none it is the default Config.
type Object struct {
	Options cluster.Options // that Check finds nothing wrong with
	Log     *slog.Logger
	Metrics *metrics.Registry
	Check   func(kubednsconfig.Config) error // as Directory's
}

// Run calls back with the first state that is known and then with each good one
// that is another, until ctx ends. While the API server is away the last state
// holds; as long as it has never been there nothing is known, and nobody is
// called. If the first is not good it calls back with the default. The calls come
// one after the other; of what changes while one of them takes its time the last
// state counts.
func (o Object) Run(ctx context.Context, apply func(kubednsconfig.Config)) {
	s, drop := newState("configmap", o.Options.ConfigMap, o.Log, o.Metrics, apply)
	s.check = o.Check
	defer drop()
	seen := &sink{news: make(chan struct{}, 1)}
	from := cluster.Open(o.Options, o.Log, o.Metrics)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { from.Run(ctx, seen) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-seen.news:
			s.take(seen.now(), nil)
		}
	}
}

// A sink is the cluster.Sink of the watch. It keeps the last state for the one who
// takes it, so that the watch waits for nobody.
type sink struct {
	news chan struct{} // has room for one
	mu   sync.Mutex
	of   cluster.Key // of the object; zero if there is none
	data map[string]string
}

func (s *sink) now() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data
}

// Put takes in the object.
func (s *sink) Put(_ cluster.Kind, objects ...cluster.Object) {
	for _, o := range objects {
		if o, ok := o.(*cluster.ConfigMap); ok {
			s.set(o.Key(), o.Data)
		}
	}
}

// Delete brings the defaults back.
func (s *sink) Delete(cluster.Kind, cluster.Key) { s.set(cluster.Key{}, nil) }

// Listed brings the defaults back if the object is not in the list.
func (s *sink) Listed(_ cluster.Kind, has func(cluster.Key) bool) {
	s.mu.Lock()
	of := s.of
	s.mu.Unlock()
	if of == (cluster.Key{}) || !has(of) {
		s.set(cluster.Key{}, nil)
	}
}

func (s *sink) set(of cluster.Key, data map[string]string) {
	s.mu.Lock()
	s.of, s.data = of, data
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default: // the one before has not been taken
	}
}
