package index

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/snapshot"
	"github.com/seamark/seamark/wire"
)

// groupServices is the number of Services after which Load publishes entries and Objects
// yields the processor.
const groupServices = 256

// loadRefs is twice the number of references that Load adds to the reverse index at a time.
// More would need more memory, and fewer would copy its leaves more often.
const loadRefs = 1 << 15

// Objects returns the objects that the index was made of: a Service is followed by its
// slices. It may run while the index changes and then has each Service before or after a
// change.
func (ix *Index) Objects() iter.Seq2[cluster.Kind, cluster.Object] {
	return func(yield func(cluster.Kind, cluster.Object) bool) {
		for _, ns := range ix.namespaces.All() {
			if ns.Exposed() && !yield(cluster.Namespaces, &cluster.Namespace{Name: ns.Name}) {
				return
			}
		}
		if !ix.yieldServices(false, yield) || !ix.yieldServices(true, yield) {
			return
		}

		ix.mu.Lock()
		pods := slices.Collect(maps.Values(ix.podObjects))
		ix.mu.Unlock()
		for _, p := range pods {
			if !yield(cluster.Pods, p) {
				return
			}
		}
	}
}

// yieldServices yields the Services or ServiceImports with their slices. It returns false if
// yield did.
func (ix *Index) yieldServices(imported bool, yield func(cluster.Kind, cluster.Object) bool) bool {
	services, endpoints := cluster.Services, cluster.Slices
	if imported {
		services, endpoints = cluster.Imports, cluster.ImportSlices
	}

	n := 0
	for _, e := range ix.table(imported).All() {
		if n++; n%groupServices == 0 {
			time.Sleep(100 * time.Microsecond) // queries go first; runtime.Gosched would not poll the network
		}

		key := e.Key.ObjectKey()
		if e.Known() && !yield(services, e.object(key)) {
			return false
		}
		for _, p := range e.Slices() {
			sl := &cluster.Slice{
				Namespace: key.Namespace, Name: p.Name(), Service: key.Name,
				Cluster: p.Ports.Cluster, Ports: p.Ports.Ports, Endpoints: p.Endpoints(),
			}
			if !yield(endpoints, sl) {
				return false
			}
		}
	}
	return true
}

// object returns the Service that the spec was made of.
func (s *Spec) object(key cluster.Key) *cluster.Service {
	o := &cluster.Service{
		Namespace: key.Namespace, Name: key.Name,
		ClusterIPs: slices.Collect(s.ClusterIPs()), Ports: s.PortList(), External: s.External,
		Headless: s.Headless, PublishNotReady: s.PublishNotReady, Selector: s.selector,
	}
	if s.ExternalName {
		o.ExternalName = "0.0.0.0" // like this one, an invalid target has no record
		if target := s.Records; target != "" {
			o.ExternalName = strings.TrimSuffix(wire.Name(target[len(wire.OwnerIsQuestion)+10:]).String(), ".")
		}
	}
	return o
}

// Load fills an empty index with the objects of a snapshot. All kinds count as listed, but
// the index is not synced: the first list of each kind deletes objects that the list
// lacks. After an error the index cannot be used.
func (ix *Index) Load(s *snapshot.Snapshot) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	loader := newReverseLoader(ix)
	// A change of few references copies as many leaves of the reverse indexes as one of many.
	flush := func() {
		ix.flushServices()
		if !ix.reverseChange.deferrable(loadRefs) || !ix.claimChange.deferrable(loadRefs) {
			loader.pass()
		}
	}

	n := 0
	err := s.Each(func(kind cluster.Kind, o cluster.Object) {
		if _, ok := o.(*cluster.Service); ok { // and all slices of the previous Service have been put
			if n++; n%groupServices == 0 {
				flush()
			}
		}
		ix.put(kind, o)
	})
	flush()
	loader.close()
	if err != nil {
		return err
	}

	ix.externalReverse.applyChange(&ix.externalChange)
	ix.loaded = true
	ix.listedKinds.Store(allKinds)
	return nil
}

// A reverseLoader adds references to the reverse indexes while the writer makes entries. No
// query reads the index yet.
type reverseLoader struct {
	index   *Index
	full    chan [2][]addrRef // of reverse and claims, to be added
	applied chan [2][]addrRef // has been added; the memory is used again
	task    sync.WaitGroup
}

func newReverseLoader(ix *Index) *reverseLoader {
	l := &reverseLoader{index: ix, full: make(chan [2][]addrRef), applied: make(chan [2][]addrRef, 1)}
	l.applied <- [2][]addrRef{}
	l.task.Go(func() {
		for refs := range l.full {
			ix.reverse.apply(refs[0], nil)
			ix.claims.apply(refs[1], nil)
			l.applied <- refs
		}
	})
	return l
}

// pass passes the pending references on.
func (l *reverseLoader) pass() {
	ix := l.index
	ix.reverseLen += len(ix.reverseChange.add) + len(ix.claimChange.add)
	spare, refs := <-l.applied, [2][]addrRef{ix.reverseChange.add, ix.claimChange.add}
	l.full <- refs
	for i := range spare {
		spare[i] = slices.Grow(spare[i][:0], len(refs[i]))
	}
	ix.reverseChange.add, ix.claimChange.add = spare[0], spare[1]
}

// close passes the last references on, and waits until all are in the indexes.
func (l *reverseLoader) close() {
	l.pass()
	close(l.full)
	l.task.Wait()
	l.index.reverseChange, l.index.claimChange = reverseChange{}, reverseChange{}
}
