package hosts

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/metrics"
)

// A configMap is one ConfigMap, watched. It is the cluster.Sink of its watch,
// and keeps the last state while the API server is away.
type configMap struct {
	mu      sync.Mutex
	of      cluster.Key // of the object; zero if there is none
	data    map[string]string
	listed  bool
	tellers []chan<- struct{}
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
}

// watchMap watches the ConfigMap that the options name, until Stop.
func watchMap(o cluster.Options, log *slog.Logger, reg *metrics.Registry) *configMap {
	ctx, cancel := context.WithCancel(context.Background())
	m := &configMap{cancel: cancel}
	from := cluster.Open(o, log, reg)
	m.tasks.Go(func() { from.Run(ctx, m) })
	return m
}

// Stop ends the watch.
func (m *configMap) Stop() {
	m.cancel()
	m.tasks.Wait()
}

// Put takes in the object.
func (m *configMap) Put(_ cluster.Kind, objects ...cluster.Object) {
	for _, o := range objects {
		if o, ok := o.(*cluster.ConfigMap); ok {
			m.set(o.Key(), o.Data)
		}
	}
}

// Delete empties it.
func (m *configMap) Delete(cluster.Kind, cluster.Key) { m.set(cluster.Key{}, nil) }

// Listed empties it if a list is without the object.
func (m *configMap) Listed(_ cluster.Kind, has func(cluster.Key) bool) {
	m.mu.Lock()
	of := m.of
	m.mu.Unlock()
	if of == (cluster.Key{}) || !has(of) {
		m.set(cluster.Key{}, nil)
	}
}

func (m *configMap) set(of cluster.Key, data map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of, m.data, m.listed = of, data, true
	for _, c := range m.tellers {
		select {
		case c <- struct{}{}:
		default: // it has not been taken since the last one
		}
	}
}

// tell sends to c, which has room for one, whenever something has come.
func (m *configMap) tell(c chan<- struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tellers = append(m.tellers, c)
}

func (m *configMap) forget(c chan<- struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tellers = slices.DeleteFunc(m.tellers, func(other chan<- struct{}) bool { return other == c })
}

// A mapped is the lines under one key of a ConfigMap.
type mapped struct {
	*configMap
	name, key string // the ConfigMap's, with its namespace
}

func (m mapped) String() string { return "configmap " + m.name + " " + m.key }

// lines gives the text; listed says whether the ConfigMap is known at all.
func (m mapped) lines() (lines string, listed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data[m.key], m.listed
}
