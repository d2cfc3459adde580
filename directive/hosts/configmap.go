package hosts

import (
	"context"
	"slices"
	"sync"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/follow"
)

// A configMap has the data of one ConfigMap. It keeps the last state while the API
// server is unavailable.
type configMap struct {
	*follow.Task
	sink cluster.ConfigMapSink

	mu          sync.Mutex
	data        map[string]string
	listed      bool
	subscribers []follow.Signal
}

// watchMap watches the ConfigMap in the options until Stop.
func watchMap(o cluster.Options, b *config.Block) *configMap {
	m := new(configMap)
	m.sink.Set = m.set
	m.Task = follow.Go(func(ctx context.Context) { sources.Run(ctx, o, &m.sink, b.Log, b.Metrics, b.Health(), b.Dial) })
	return m
}

// set sets the data and notifies the subscribers.
func (m *configMap) set(data map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data, m.listed = data, true
	for _, c := range m.subscribers {
		c.Send()
	}
}

// subscribe sends to c whenever the data has been set.
func (m *configMap) subscribe(c follow.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.subscribers = append(m.subscribers, c)
}

// unsubscribe stops sending to c.
func (m *configMap) unsubscribe(c follow.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.subscribers = slices.DeleteFunc(m.subscribers, func(other follow.Signal) bool { return other == c })
}

// A mapKey is one key of a ConfigMap.
type mapKey struct {
	*configMap
	name string // NAMESPACE/NAME
	key  string
}

func (m mapKey) String() string { return "configmap " + m.name + " " + m.key }

// lines returns the lines of the key. listed reports whether the ConfigMap has been
// listed.
func (m mapKey) lines() (lines string, listed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data[m.key], m.listed
}
