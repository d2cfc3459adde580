package cluster

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A merger makes one list of each kind out of one per namespace, where the
// options name namespaces: each of these is watched on its own, so that a Role
// in each of them is permission enough. A kind is replaced when all of its
// namespaces have been listed, and again whenever one of them is listed anew.
type merger struct {
	sink  Sink
	heard *[Kinds]heard
	mu    sync.Mutex
	parts [Kinds][]part // by namespace
}

// A part is what one namespace has of one kind.
type part struct {
	objects map[Key]Object // nil until they were listed
	heard   time.Time
}

func newMerger(sink Sink, heard *[Kinds]heard, namespaces int) *merger {
	m := &merger{sink: sink, heard: heard}
	for kind := range m.parts {
		m.parts[kind] = make([]part, namespaces)
		for i := range m.parts[kind] {
			m.parts[kind][i].heard = time.Now()
		}
	}
	return m
}

// A share is the Sink of one namespace, by its number.
type share struct {
	*merger
	namespace int
}

func (s share) Put(kind Kind, object Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[kind][s.namespace].objects[object.Key()] = object // there is a map: the reflector lists first
	if s.whole(kind) {
		s.sink.Put(kind, object)
	}
}

func (s share) Delete(kind Kind, key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.parts[kind][s.namespace].objects, key)
	if s.whole(kind) {
		s.sink.Delete(kind, key)
	}
}

func (s share) Replace(kind Kind, objects []Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := make(map[Key]Object, len(objects))
	for _, object := range objects {
		mine[object.Key()] = object
	}
	s.parts[kind][s.namespace].objects = mine
	if !s.whole(kind) {
		return
	}
	var all []Object
	for _, p := range s.parts[kind] {
		all = slices.AppendSeq(all, maps.Values(p.objects))
	}
	s.sink.Replace(kind, all)
}

// whole says whether every namespace has been listed. The caller holds the
// lock.
func (m *merger) whole(kind Kind) bool {
	return !slices.ContainsFunc(m.parts[kind], func(p part) bool { return p.objects == nil })
}

// hear makes the kind as old as the namespace that was not heard of for
// longest.
func (s share) hear(kind Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[kind][s.namespace].heard = time.Now()
	oldest := slices.MinFunc(s.parts[kind], func(a, b part) int { return a.heard.Compare(b.heard) })
	s.merger.heard[kind].set(oldest.heard)
}
