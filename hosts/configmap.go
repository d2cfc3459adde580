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
func (m *configMap) Put(_ cluster.Kind, o cluster.Object) {
	if o, ok := o.(*cluster.ConfigMap); ok {
		m.set(o.Data)
	}
}

// Delete empties it.
func (m *configMap) Delete(cluster.Kind, cluster.Key) { m.set(nil) }

// Replace takes in a list, of one object or none.
func (m *configMap) Replace(_ cluster.Kind, list []cluster.Object) {
	var data map[string]string
	for _, o := range list {
		if o, ok := o.(*cluster.ConfigMap); ok {
			data = o.Data
		}
	}
	m.set(data)
}

func (m *configMap) set(data map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data, m.listed = data, true
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
