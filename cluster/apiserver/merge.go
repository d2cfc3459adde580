package apiserver

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster"
)

// A merger merges the lists of several namespaces into one for each kind. If the
// options name namespaces, each is watched by its own feeds, so that a Role in each
// namespace is sufficient; if not, the only one is "", which stands for all. A kind's list
// ends when all namespaces have been listed, and again whenever one of them is listed again.
type merger struct {
	sink       cluster.Sink
	monitor    *cluster.Monitor
	namespaces []string
	mu         sync.Mutex
	lists      [cluster.Kinds][]namespaceList // by namespace
	complete   [cluster.Kinds]bool            // all namespaces have been listed
}

// A namespaceList is the last list of one kind in one namespace, with the changes since.
type namespaceList struct {
	keys     *keys // of its objects; nil before they were listed, and once the kind is complete
	received time.Time
}

func newMerger(sink cluster.Sink, monitor *cluster.Monitor, namespaces []string) *merger {
	m := &merger{sink: sink, monitor: monitor, namespaces: namespaces}
	for kind := range m.lists {
		m.lists[kind] = make([]namespaceList, len(namespaces))
	}
	return m
}

// A namespaceSink receives the objects of the feeds of one namespace, or of all.
type namespaceSink struct {
	*merger
	namespace int
}

func (s namespaceSink) list(kind cluster.Kind) *namespaceList { return &s.lists[kind][s.namespace] }

func (s namespaceSink) Put(kind cluster.Kind, objects ...cluster.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, object := range objects {
		s.list(kind).keys.add(object.Key())
	}
	s.sink.Put(kind, objects...)
}

func (s namespaceSink) Delete(kind cluster.Kind, key cluster.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list(kind).keys.remove(key)
	s.sink.Delete(kind, key)
}

// listed ends a list, whose keys the sink owns from then on.
func (s namespaceSink) listed(kind cluster.Kind, in *keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.complete[kind] {
		// The sink has of the other namespaces what their lists and events have left.
		s.sink.Listed(kind, func(key cluster.Key) bool { return s.isOther(key) || in.has(key) })
		return
	}

	s.list(kind).keys = in
	lists := s.lists[kind]
	if slices.ContainsFunc(lists, func(l namespaceList) bool { return l.keys == nil }) {
		// The sink waits for all namespaces, but objects of a snapshot in this one are old.
		for _, key := range s.absent(kind, in) {
			s.sink.Delete(kind, key)
		}
		return
	}
	s.sink.Listed(kind, hasKey(lists))
	s.complete[kind] = true
	for i := range lists {
		lists[i].keys = nil // they are not needed any more, and may be many
	}
}

// missing returns how many objects the sink has of the namespace, and how many of them are not in a
// list. Those of other namespaces do not count: beside them the loss of all could be a small part.
func (s namespaceSink) missing(kind cluster.Kind, in *keys) (missing, objects int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespaces[s.namespace] == "" {
		return countMissing(s.sink, kind, in.has)
	}
	objects, _ = countMissing(s.sink, kind, s.isOther)
	missing, _ = countMissing(s.sink, kind, func(key cluster.Key) bool { return s.isOther(key) || in.has(key) })
	return missing, objects
}

// absent returns the keys of the sink's objects in the namespace that are not in a list.
func (s namespaceSink) absent(kind cluster.Kind, in *keys) (absent []cluster.Key) {
	countMissing(s.sink, kind, func(key cluster.Key) bool {
		if s.isOther(key) || in.has(key) {
			return true
		}
		absent = append(absent, key)
		return false
	})
	return absent
}

// isOther reports whether an object is not in the namespace. A Namespace is in itself.
func (s namespaceSink) isOther(key cluster.Key) bool {
	namespace := s.namespaces[s.namespace]
	return namespace != "" && cmp.Or(key.Namespace, key.Name) != namespace
}

// hasKey returns a function that reports whether a key is in any of the lists.
func hasKey(lists []namespaceList) func(cluster.Key) bool {
	return func(key cluster.Key) bool {
		return slices.ContainsFunc(lists, func(l namespaceList) bool { return l.keys.has(key) })
	}
}

// received records that data was received. The kind's age is the age of its oldest
// namespace.
func (s namespaceSink) received(kind cluster.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list(kind).received = time.Now()
	oldest := slices.MinFunc(s.lists[kind], func(a, b namespaceList) int { return a.received.Compare(b.received) })
	if !oldest.received.IsZero() {
		s.monitor.Received(kind, oldest.received)
	}
}
