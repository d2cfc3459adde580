package kube2sky

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/sys/follow"
)

// A state holds the cluster's objects and, while this replica writes, the queue
// of key groups that have changed. It is the sink of a cluster's source, which never
// waits for etcd: a group that changes several times while it is queued is
// written once.
type state struct {
	zone zone

	mu       sync.Mutex
	services map[cluster.Key]*serviceEntry
	bySlice  map[cluster.Key]*serviceEntry // by EndpointSlice
	pods     map[cluster.Key]*cluster.Pod
	podAddrs map[podAddr]int // number of pods with the address: pods in the host network share it
	reverse  claims
	missing  map[cluster.Kind]bool // kinds that have not been listed

	complete chan struct{} // closed when every kind has been listed
	queue    *queue
}

type podAddr struct {
	namespace string
	addr      netip.Addr
}

// A serviceEntry is a Service with its EndpointSlices. Either may arrive first.
type serviceEntry struct {
	key     cluster.Key
	service *cluster.Service // nil if absent
	slices  []*cluster.Slice // by name
}

func newState(z zone, kinds []cluster.Kind) *state {
	s := &state{
		zone:     z,
		services: map[cluster.Key]*serviceEntry{}, bySlice: map[cluster.Key]*serviceEntry{},
		pods: map[cluster.Key]*cluster.Pod{}, podAddrs: map[podAddr]int{},
		reverse: newClaims(), missing: map[cluster.Kind]bool{},
		complete: make(chan struct{}), queue: newQueue(),
	}
	for _, k := range kinds {
		s.missing[k] = true
	}
	return s
}

// Put adds or replaces objects.
func (s *state) Put(_ cluster.Kind, objects ...cluster.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		switch o := o.(type) {
		case *cluster.Service:
			h := s.entry(o.Key())
			s.change(h, o, h.slices)
		case *cluster.Slice:
			s.putSlice(o)
		case *cluster.Pod:
			s.putPod(o.Key(), o)
		}
	}
}

// Delete deletes an object.
func (s *state) Delete(kind cluster.Kind, key cluster.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delete(kind, key)
}

// Listed deletes the objects that has does not report.
func (s *state) Listed(kind cluster.Kind, has func(cluster.Key) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []cluster.Key
	switch kind {
	case cluster.Services:
		keys = slices.Collect(maps.Keys(s.services))
	case cluster.Slices:
		keys = slices.Collect(maps.Keys(s.bySlice))
	case cluster.Pods:
		keys = slices.Collect(maps.Keys(s.pods))
	}

	for _, key := range keys {
		if !has(key) {
			s.delete(kind, key)
		}
	}
	if s.missing[kind] {
		delete(s.missing, kind)
		if len(s.missing) == 0 {
			close(s.complete)
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

func (s *state) entry(key cluster.Key) *serviceEntry {
	h := s.services[key]
	if h == nil {
		h = &serviceEntry{key: key}
		s.services[key] = h
	}
	return h
}

// change replaces the objects of h. It adds the new claims before it removes the
// old ones, so that an unchanged reverse name is not written.
func (s *state) change(h *serviceEntry, svc *cluster.Service, parts []*cluster.Slice) {
	before := *h
	h.service, h.slices = svc, parts
	if before.service == svc { // most changes affect one slice
		for _, slice := range parts {
			if !slices.Contains(before.slices, slice) {
				s.reverse.forEachOf(h, svc, slice, s.reverse.add)
			}
		}
		for _, slice := range before.slices {
			if !slices.Contains(parts, slice) {
				s.reverse.forEachOf(h, svc, slice, s.reverse.remove)
			}
		}
	} else {
		s.reverse.forEach(h, h, s.reverse.add)
		s.reverse.forEach(h, &before, s.reverse.remove)
	}

	for _, ip := range s.reverse.changed() {
		s.queue.add(keyGroup{kind: reverseGroup, addr: ip})
	}
	if before.service != svc || svc != nil && svc.Headless { // endpoints of other Services have no records
		s.queue.add(keyGroup{kind: serviceGroup, namespace: h.key.Namespace, name: h.key.Name})
	}
	if h.service == nil && len(h.slices) == 0 {
		delete(s.services, h.key)
	}
}

func (s *state) putSlice(slice *cluster.Slice) {
	h := s.entry(cluster.Key{Namespace: slice.Namespace, Name: slice.Service})
	if before := s.bySlice[slice.Key()]; before != h {
		s.deleteSlice(slice.Key()) // the slice has moved to another Service
		s.bySlice[slice.Key()] = h
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
	h := s.bySlice[key]
	if h == nil {
		return
	}
	delete(s.bySlice, key)
	if i, found := h.find(key.Name); found {
		s.change(h, h.service, slices.Delete(slices.Clone(h.slices), i, i+1))
	}
}

func (h *serviceEntry) find(name string) (int, bool) {
	return slices.BinarySearchFunc(h.slices, name, func(s *cluster.Slice, name string) int {
		return strings.Compare(s.Name, name)
	})
}

// putPod replaces a pod, or deletes it if p is nil. It counts the new addresses
// before it discounts the old ones.
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
		s.queue.add(keyGroup{kind: podGroup, namespace: at.namespace, addr: at.addr})
	}
}

// wanted returns the records that a group should have, sorted by path.
func (s *state) wanted(p keyGroup) []record {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p.kind {
	case serviceGroup:
		if h := s.services[cluster.Key{Namespace: p.namespace, Name: p.name}]; h != nil {
			return s.zone.service(h.service, h.slices)
		}
	case podGroup:
		if s.podAddrs[podAddr{p.namespace, p.addr}] > 0 {
			return []record{s.zone.pod(p.namespace, p.addr)}
		}
	case reverseGroup:
		if c, ok := s.reverse.best(p.addr); ok {
			return []record{s.zone.reverse(p.addr, c.entry.key, c.label(p.addr))}
		}
	}
	return nil
}

// addAll queues every group except the ones in current, whose keys are as wanted.
func (s *state) addAll(current map[keyGroup]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(p keyGroup) {
		if _, ok := current[p]; !ok {
			s.queue.add(p)
		}
	}
	for key, h := range s.services {
		if h.service != nil {
			add(keyGroup{kind: serviceGroup, namespace: key.Namespace, name: key.Name})
		}
	}
	for at := range s.podAddrs {
		add(keyGroup{kind: podGroup, namespace: at.namespace, addr: at.addr})
	}
	for ip := range s.reverse.all {
		add(keyGroup{kind: reverseGroup, addr: ip})
	}
}

// A queue holds groups in the order of their first change, each once. It is safe
// for concurrent use.
type queue struct {
	mu     sync.Mutex
	active bool
	order  []keyGroup
	queued map[keyGroup]struct{}
	wake   follow.Signal
}

func newQueue() *queue {
	return &queue{queued: map[keyGroup]struct{}{}, wake: follow.NewSignal()}
}

// start starts to record changes.
func (q *queue) start() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.active = true
}

// stop stops the recording of changes and discards the queue.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.active, q.order = false, nil
	q.queued = map[keyGroup]struct{}{} // clear would keep the memory
}

func (q *queue) add(groups ...keyGroup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range groups {
		if _, ok := q.queued[p]; ok || !q.active {
			continue
		}
		q.queued[p] = struct{}{}
		q.order = append(q.order, p)
		q.wake.Send()
	}
}

// take removes up to n groups and returns them.
func (q *queue) take(n int) []keyGroup {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, len(q.order))
	taken := slices.Clone(q.order[:n])
	for _, p := range taken {
		delete(q.queued, p)
	}
	if q.order = q.order[n:]; len(q.order) == 0 {
		q.order = nil
	}
	return taken
}

func (q *queue) pending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order)
}
