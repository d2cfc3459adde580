package kube2sky

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/seamark/seamark/cluster"
)

// A state is the cluster's objects and, while somebody writes, which places have
// changed. It is the sink of a cluster's source, which never waits for etcd: of
// what changes while a place waits for its turn the last state counts.
type state struct {
	zone zone

	mu       sync.Mutex
	services map[cluster.Key]*held
	of       map[cluster.Key]*held // of each slice
	pods     map[cluster.Key]*cluster.Pod
	podAddrs map[podAddr]int // how many pods have it: those in a node's network share it
	reverse  claims
	missing  map[cluster.Kind]bool // kinds that have not been listed

	whole chan struct{} // is closed when every kind has been listed
	work  queue
}

type podAddr struct {
	namespace string
	addr      netip.Addr
}

// A held is a Service with its slices. Either may come first.
type held struct {
	key     cluster.Key
	service *cluster.Service // nil if there is none
	slices  []*cluster.Slice // by name
}

func newState(z zone, kinds []cluster.Kind) *state {
	s := &state{
		zone:     z,
		services: map[cluster.Key]*held{}, of: map[cluster.Key]*held{},
		pods: map[cluster.Key]*cluster.Pod{}, podAddrs: map[podAddr]int{},
		reverse: newClaims(), missing: map[cluster.Kind]bool{},
		whole: make(chan struct{}), work: newQueue(),
	}
	for _, k := range kinds {
		s.missing[k] = true
	}
	return s
}

// Put takes objects in.
func (s *state) Put(_ cluster.Kind, objects ...cluster.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		switch o := o.(type) {
		case *cluster.Service:
			h := s.held(o.Key())
			s.change(h, o, h.slices)
		case *cluster.Slice:
			s.putSlice(o)
		case *cluster.Pod:
			s.putPod(o.Key(), o)
		}
	}
}

// Delete takes one out.
func (s *state) Delete(kind cluster.Kind, key cluster.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delete(kind, key)
}

// Listed takes out what is not in the list.
func (s *state) Listed(kind cluster.Kind, has func(cluster.Key) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case cluster.Services:
		for key := range s.services {
			if !has(key) {
				s.delete(kind, key)
			}
		}
	case cluster.Slices:
		for key := range s.of {
			if !has(key) {
				s.delete(kind, key)
			}
		}
	case cluster.Pods:
		for key := range s.pods {
			if !has(key) {
				s.delete(kind, key)
			}
		}
	}
	if s.missing[kind] {
		delete(s.missing, kind)
		if len(s.missing) == 0 {
			close(s.whole)
		}
	}
}

func (s *state) delete(kind cluster.Kind, key cluster.Key) {
	switch kind {
	case cluster.Services:
		if h := s.services[key]; h != nil {
			s.change(h, nil, h.slices)
		}
	case cluster.Slices:
		s.deleteSlice(key)
	case cluster.Pods:
		s.putPod(key, nil)
	}
}

func (s *state) held(key cluster.Key) *held {
	h := s.services[key]
	if h == nil {
		h = &held{key: key}
		s.services[key] = h
	}
	return h
}

// change gives h other objects: the claims of those that go are taken back after
// those of the new ones have been made, so that a reverse name that stays is not
// touched.
func (s *state) change(h *held, svc *cluster.Service, parts []*cluster.Slice) {
	before := *h
	h.service, h.slices = svc, parts
	if before.service == svc { // most changes are of one slice
		for _, slice := range parts {
			if !slices.Contains(before.slices, slice) {
				s.reverse.slice(h, svc, slice, s.reverse.add)
			}
		}
		for _, slice := range before.slices {
			if !slices.Contains(parts, slice) {
				s.reverse.slice(h, svc, slice, s.reverse.remove)
			}
		}
	} else {
		s.reverse.all(h, h, s.reverse.add)
		s.reverse.all(h, &before, s.reverse.remove)
	}
	for _, ip := range s.reverse.changed() {
		s.work.add(place{kind: ofReverse, addr: ip})
	}
	if before.service != svc || svc != nil && svc.Headless { // or its endpoints have no names
		s.work.add(place{kind: ofService, namespace: h.key.Namespace, name: h.key.Name})
	}
	if h.service == nil && len(h.slices) == 0 {
		delete(s.services, h.key)
	}
}

func (s *state) putSlice(slice *cluster.Slice) {
	h := s.held(cluster.Key{Namespace: slice.Namespace, Name: slice.Service})
	if before := s.of[slice.Key()]; before != h {
		s.deleteSlice(slice.Key()) // its label is another one now
		s.of[slice.Key()] = h
	}
	i, found := h.find(slice.Name)
	parts := slices.Clone(h.slices)
	if found {
		parts[i] = slice
	} else {
		parts = slices.Insert(parts, i, slice)
	}
	s.change(h, h.service, parts)
}

func (s *state) deleteSlice(key cluster.Key) {
	h := s.of[key]
	if h == nil {
		return
	}
	delete(s.of, key)
	if i, found := h.find(key.Name); found {
		s.change(h, h.service, slices.Delete(slices.Clone(h.slices), i, i+1))
	}
}

func (h *held) find(name string) (int, bool) {
	return slices.BinarySearchFunc(h.slices, name, func(s *cluster.Slice, name string) int { return strings.Compare(s.Name, name) })
}

// putPod counts a pod's addresses before it forgets those from before; p may be nil.
func (s *state) putPod(key cluster.Key, p *cluster.Pod) {
	before := s.pods[key]
	if p != nil {
		s.pods[key] = p
		for _, ip := range p.IPs {
			s.countPod(podAddr{key.Namespace, ip}, 1)
		}
	} else {
		delete(s.pods, key)
	}
	if before != nil {
		for _, ip := range before.IPs {
			s.countPod(podAddr{key.Namespace, ip}, -1)
		}
	}
}

func (s *state) countPod(at podAddr, by int) {
	n := s.podAddrs[at] + by
	if n > 0 {
		s.podAddrs[at] = n
	} else {
		delete(s.podAddrs, at)
	}
	if n == 0 || n == by {
		s.work.add(place{kind: ofPod, namespace: at.namespace, addr: at.addr})
	}
}

// wanted gives the records that a place should have, sorted by path.
func (s *state) wanted(p place) []record {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p.kind {
	case ofService:
		if h := s.services[cluster.Key{Namespace: p.namespace, Name: p.name}]; h != nil {
			return s.zone.service(h.service, h.slices)
		}
	case ofPod:
		if s.podAddrs[podAddr{p.namespace, p.addr}] > 0 {
			return []record{s.zone.pod(p.namespace, p.addr)}
		}
	case ofReverse:
		if c, ok := s.reverse.best(p.addr); ok {
			return []record{s.zone.reverse(p.addr, c.of.key, c.label(p.addr))}
		}
	}
	return nil
}

// follow begins to note which places change.
func (s *state) follow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work.begin()
}

// leave ends that.
func (s *state) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work.end()
}

// all adds every place to the work but those that are known to be as wanted.
func (s *state) all(fine map[place]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(p place) {
		if _, ok := fine[p]; !ok {
			s.work.add(p)
		}
	}
	for key, h := range s.services {
		if h.service != nil {
			add(place{kind: ofService, namespace: key.Namespace, name: key.Name})
		}
	}
	for at := range s.podAddrs {
		add(place{kind: ofPod, namespace: at.namespace, addr: at.addr})
	}
	for ip := range s.reverse.first {
		add(place{kind: ofReverse, addr: ip})
	}
}

// add adds places to the work.
func (s *state) add(places ...place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range places {
		s.work.add(p)
	}
}

// take takes up to n places from the work.
func (s *state) take(n int) []place {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.work.take(n)
}

// pending is how many places wait.
func (s *state) pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.work.in)
}

// A queue is places that have changed, each once, the first first.
type queue struct {
	open  bool
	order []place
	in    map[place]struct{}
	news  chan struct{} // has room for one
}

func newQueue() queue { return queue{in: map[place]struct{}{}, news: make(chan struct{}, 1)} }

func (q *queue) begin() { q.open = true }

func (q *queue) end() {
	q.open, q.order = false, nil
	q.in = map[place]struct{}{} // and not cleared: its room is given back
}

func (q *queue) add(p place) {
	if !q.open {
		return
	}
	if _, ok := q.in[p]; ok {
		return
	}
	q.in[p] = struct{}{}
	q.order = append(q.order, p)
	select {
	case q.news <- struct{}{}:
	default:
	}
}

func (q *queue) take(n int) []place {
	n = min(n, len(q.order))
	taken := slices.Clone(q.order[:n])
	for _, p := range taken {
		delete(q.in, p)
	}
	if q.order = q.order[n:]; len(q.order) == 0 {
		q.order = nil
	}
	return taken
}
