package apiserver

import (
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster"
)

// A merger merges the lists of several namespaces into one for each kind. If the
// options name namespaces, each is watched by its own feeds, so that a Role in each
// namespace is sufficient. A kind's list ends when all namespaces have been listed,
// and again whenever one of them is listed again.
type merger struct {
	sink    cluster.Sink
	monitor *cluster.Monitor
	mu      sync.Mutex
	parts   [cluster.Kinds][]part // by namespace
}

// A part is the state of one kind in one namespace.
type part struct {
	keys     *keys // of its objects; nil until they were listed
	received time.Time
}

func newMerger(sink cluster.Sink, monitor *cluster.Monitor, namespaces int) *merger {
	m := &merger{sink: sink, monitor: monitor}
	for kind := range m.parts {
		m.parts[kind] = make([]part, namespaces)
		for i := range m.parts[kind] {
			m.parts[kind][i].received = time.Now()
		}
	}
	return m
}

// A share is the outlet of one namespace.
type share struct {
	*merger
	namespace int
}

func (s share) part(kind cluster.Kind) *part { return &s.parts[kind][s.namespace] }

func (s share) Put(kind cluster.Kind, objects ...cluster.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, object := range objects {
		s.part(kind).keys.add(object.Key())
	}
	s.sink.Put(kind, objects...)
}

func (s share) Delete(kind cluster.Kind, key cluster.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part(kind).keys.remove(key)
	s.sink.Delete(kind, key)
}

func (s share) listed(kind cluster.Kind, in *keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part(kind).keys = in
	parts := s.parts[kind]
	if slices.ContainsFunc(parts, func(p part) bool { return p.keys == nil }) {
		return // the sink waits for all namespaces
	}
	s.sink.Listed(kind, func(key cluster.Key) bool {
		return slices.ContainsFunc(parts, func(p part) bool { return p.keys.has(key) })
	})
}

// received records that something was received. The kind's age is that of its oldest
// namespace.
func (s share) received(kind cluster.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part(kind).received = time.Now()
	oldest := slices.MinFunc(s.parts[kind], func(a, b part) int { return a.received.Compare(b.received) })
	s.monitor.Received(kind, oldest.received)
}
