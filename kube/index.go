package kube

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// An Index is a cluster's names, kept as answers. It is the Sink of a
// cluster.Source; handlers read it without a lock. It knows no zone: names in
// it end at their namespace.
type Index struct {
	set settings
	log *slog.Logger

	services zone.Table[entry] // by the labels "service.namespace"
	imports  zone.Table[entry] // ServiceImports, likewise
	spaces   zone.Table[space] // by the label of the namespace; exposed or not
	pods     zone.Table[podRef]
	reverse  addrs
	clients  zone.Table[client] // pods by address, if settings.clients asks for it
	outside  addrs              // the addresses that k8s_external knows
	timing   *timing            // nil counts nothing

	listed       atomic.Uint32 // a bit for each kind that has been listed, or is not asked for
	whole        chan struct{} // closed when that is all
	serial       atomic.Uint32 // sum over all entries and pods of exposed namespaces
	importSerial atomic.Uint32

	mu     sync.Mutex                            // of the writer; what follows is the writer's alone
	slices [cluster.Kinds]map[cluster.Key]string // slice → key of the Service it belongs to
	podsBy map[cluster.Key]*cluster.Pod
	drafts map[draftKey]*entry // entries being changed
	turned map[*space]struct{} // namespaces shown or hidden since the last flush
	change                     // of reverse
	beyond change              // of outside
}

// A change is pairs to be added to a reverse index and to be removed.
type change struct{ add, remove []pair }

type draftKey struct {
	imported bool
	key      string
}

// A podRef counts the pods of a namespace that have an address.
type podRef struct{ n int }

// NewIndex makes an empty index, which is synced once all of kinds have been
// listed.
func NewIndex(set settings, kinds []cluster.Kind, log *slog.Logger) *Index {
	ix := &Index{set: set, log: log, whole: make(chan struct{}), podsBy: map[cluster.Key]*cluster.Pod{}, drafts: map[draftKey]*entry{}, turned: map[*space]struct{}{}}
	ix.slices[cluster.Slices] = map[cluster.Key]string{}
	ix.slices[cluster.ImportSlices] = map[cluster.Key]string{}
	ix.listed.Store(allKinds)
	for _, k := range kinds {
		ix.listed.Store(ix.listed.Load() &^ (1 << k))
	}
	return ix
}

const allKinds = 1<<cluster.Kinds - 1

// Synced says whether the index has held the whole cluster. It then stays so:
// the last known state is served for as long as the source is away.
func (ix *Index) Synced() bool { return ix.listed.Load() == allKinds }

// missing names the kinds that have not been listed.
func (ix *Index) missing() string {
	var names []string
	for kind := range cluster.Kinds {
		if ix.listed.Load()>>kind&1 == 0 {
			names = append(names, kind.String())
		}
	}
	return strings.Join(names, ", ")
}

// has says whether the kinds have been listed: before that, what is missing may
// exist.
func (ix *Index) has(a, b cluster.Kind) bool {
	want := uint32(1)<<a | 1<<b
	return ix.listed.Load()&want == want
}

// Put adds or replaces one object.
func (ix *Index) Put(kind cluster.Kind, o cluster.Object) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.put(kind, o)
	ix.flush()
}

// Delete removes one object.
func (ix *Index) Delete(kind cluster.Kind, key cluster.Key) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.delete(kind, key)
	ix.flush()
}

// Replace puts every object of list and deletes what else there is of kind. The
// old answers are served meanwhile.
func (ix *Index) Replace(kind cluster.Kind, list []cluster.Object) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	seen := make(map[cluster.Key]struct{}, len(list))
	for _, o := range list {
		seen[o.Key()] = struct{}{}
		ix.put(kind, o)
	}
	for _, key := range ix.keys(kind) {
		if _, ok := seen[key]; !ok {
			ix.delete(kind, key)
		}
	}
	ix.flush()
	if before := ix.listed.Or(1 << kind); before != allKinds && ix.Synced() {
		close(ix.whole)
	}
}

// keys lists what the index holds of a kind.
func (ix *Index) keys(kind cluster.Kind) (keys []cluster.Key) {
	switch kind {
	case cluster.Namespaces:
		for _, s := range ix.spaces.All() {
			if s.exposed.Load() {
				keys = append(keys, cluster.Key{Name: s.name})
			}
		}
	case cluster.Services, cluster.Imports:
		for _, e := range ix.table(kind == cluster.Imports).All() {
			if e.service != nil {
				keys = append(keys, e.service.Key())
			}
		}
	case cluster.Slices, cluster.ImportSlices:
		for key := range ix.slices[kind] {
			keys = append(keys, key)
		}
	case cluster.Pods:
		for key := range ix.podsBy {
			keys = append(keys, key)
		}
	}
	return keys
}

func (ix *Index) table(imported bool) *zone.Table[entry] {
	if imported {
		return &ix.imports
	}
	return &ix.services
}

func (ix *Index) put(kind cluster.Kind, o cluster.Object) {
	switch o := o.(type) {
	case *cluster.Namespace:
		if s := ix.space(o.Name); s != nil {
			ix.expose(s, true)
		}
	case *cluster.Service:
		if e := ix.draft(kind == cluster.Imports, o.Namespace, o.Name); e != nil {
			e.service = o
		}
	case *cluster.Slice:
		ix.putSlice(kind, o)
	case *cluster.Pod:
		ix.putPod(o)
	}
}

func (ix *Index) delete(kind cluster.Kind, key cluster.Key) {
	switch kind {
	case cluster.Namespaces:
		if s := ix.spaces.Get([]byte(label(key.Name))); s != nil {
			ix.expose(s, false)
			ix.release(s)
		}
	case cluster.Services, cluster.Imports:
		if e := ix.draft(kind == cluster.Imports, key.Namespace, key.Name); e != nil {
			e.service = nil
		}
	case cluster.Slices, cluster.ImportSlices:
		ix.deleteSlice(kind, key)
	case cluster.Pods:
		ix.deletePod(key)
	}
}

// space finds a namespace, or makes it, not yet exposed. It is nil if the name
// cannot be a label.
func (ix *Index) space(name string) *space {
	key := label(name)
	if key == "" {
		ix.log.Warn("a namespace whose name is no DNS label has no names", "namespace", name)
		return nil
	}
	s := ix.spaces.Get([]byte(key))
	if s == nil {
		s = &space{name: name}
		ix.spaces.Set(key, s)
	}
	return s
}

// expose shows or hides all names of a namespace.
func (ix *Index) expose(s *space, exposed bool) {
	if s.exposed.Swap(exposed) == exposed {
		return
	}
	ix.turned[s] = struct{}{}
	sign := uint32(1)
	if !exposed {
		sign = ^uint32(0)
	}
	ix.serial.Add(sign * s.sum)
	ix.importSerial.Add(sign * s.importSum)
}

// weigh adds to what a namespace's Services and pods, or its imports, are worth
// in the serial.
func (ix *Index) weigh(s *space, imported bool, by uint32) {
	sum, serial := &s.sum, &ix.serial
	if imported {
		sum, serial = &s.importSum, &ix.importSerial
	}
	*sum += by
	if s.exposed.Load() {
		serial.Add(by)
	}
}

// release forgets a namespace that is neither exposed nor has anything in it.
func (ix *Index) release(s *space) {
	if s.used == 0 && !s.exposed.Load() {
		ix.spaces.Delete(label(s.name))
	}
}

// draft gives the entry of a Service as it will be, to be changed until the
// next flush.
func (ix *Index) draft(imported bool, namespace, name string) *entry {
	service, ns := label(name), label(namespace)
	if service == "" || ns == "" {
		ix.log.Warn("a Service whose name is no DNS label has no names", "namespace", namespace, "service", name)
		return nil
	}
	return ix.draftOf(imported, service+ns, namespace)
}

func (ix *Index) draftOf(imported bool, key, namespace string) *entry {
	k := draftKey{imported, key}
	if e := ix.drafts[k]; e != nil {
		return e
	}
	e := new(entry)
	if old := ix.table(imported).Get([]byte(key)); old != nil {
		*e = *old
		e.slices = slices.Clone(old.slices)
	} else {
		e.home = &home{key, ix.space(namespace)}
	}
	ix.drafts[k] = e
	return e
}

func (ix *Index) putSlice(kind cluster.Kind, sl *cluster.Slice) {
	e := ix.draft(kind == cluster.ImportSlices, sl.Namespace, sl.Service)
	if before, ok := ix.slices[kind][sl.Key()]; ok && (e == nil || before != e.home.key) {
		ix.deleteSlice(kind, sl.Key()) // it belongs to another Service now
	}
	if e == nil {
		return
	}
	ix.slices[kind][sl.Key()] = e.home.key
	i, found := slices.BinarySearchFunc(e.slices, sl, func(a, b *cluster.Slice) int { return strings.Compare(a.Name, b.Name) })
	if found {
		e.slices[i] = sl
	} else {
		e.slices = slices.Insert(e.slices, i, sl)
	}
}

func (ix *Index) deleteSlice(kind cluster.Kind, key cluster.Key) {
	of, ok := ix.slices[kind][key]
	if !ok {
		return
	}
	delete(ix.slices[kind], key)
	e := ix.draftOf(kind == cluster.ImportSlices, of, key.Namespace)
	e.slices = slices.DeleteFunc(e.slices, func(sl *cluster.Slice) bool { return sl.Name == key.Name })
}

// flush builds the drafts and shows them to readers, one Service after the
// other. Their addresses follow: until then a reverse name finds the Service
// as it was, or not at all.
func (ix *Index) flush() {
	ix.turn()
	for k, e := range ix.drafts {
		table := ix.table(k.imported)
		old := table.Get([]byte(k.key))
		if old != nil && old.same(e) {
			continue // as after most lists: what is there stays
		}
		e.build(ix.set)
		switch {
		case e.service != nil || len(e.slices) > 0:
			table.Set(k.key, e)
			if old == nil {
				e.home.space.used++
			}
		case old != nil:
			table.Delete(k.key)
			e.home.space.used--
		}
		before := uint32(0)
		if old != nil {
			before = old.sum
		}
		ix.weigh(e.home.space, k.imported, e.sum-before)
		if !k.imported { // imports have no reverse names (multi-cluster specification)
			ix.compare(old, e)
		}
	}
	for _, e := range ix.drafts {
		ix.release(e.home.space)
	}
	clear(ix.drafts)
	ix.reverse.take(&ix.change)
	ix.outside.take(&ix.beyond)
}

// take makes a change, and empties it.
func (a *addrs) take(c *change) {
	a.apply(c.add, c.remove)
	c.add, c.remove = c.add[:0], c.remove[:0]
	if cap(c.add) > 1<<10 {
		*c = change{}
	}
}

// turn notes the addresses of namespaces that have been shown or hidden. Those
// of hidden ones are not in the reverse index: nobody has to step over them.
func (ix *Index) turn() {
	if len(ix.turned) == 0 {
		return
	}
	for _, e := range ix.services.All() {
		if _, ok := ix.turned[e.home.space]; !ok {
			continue
		}
		var old, now *entry
		if e.home.space.exposed.Load() {
			now = e
		} else {
			old = e
		}
		ix.note(e.home, old, now)
	}
	clear(ix.turned)
}

// compare notes which addresses the change brings and which it takes.
func (ix *Index) compare(old, e *entry) {
	if !e.home.space.exposed.Load() {
		return
	}
	ix.note(e.home, old, e)
}

func (ix *Index) note(of *home, old, now *entry) {
	ix.change.compare(of, old.pairs(), now.pairs())
	if ix.set.external.on {
		ix.beyond.compare(of, old.fromOutside(), now.fromOutside())
	}
}

func (c *change) compare(of *home, had, has map[address]struct{}) {
	for addr := range has {
		if _, ok := had[addr]; !ok {
			c.add = append(c.add, pair{addr, of})
		}
	}
	for addr := range had {
		if _, ok := has[addr]; !ok {
			c.remove = append(c.remove, pair{addr, of})
		}
	}
}

// same says whether e's objects are equal to old's.
func (old *entry) same(e *entry) bool {
	if (old.service == nil) != (e.service == nil) || len(old.slices) != len(e.slices) {
		return false
	}
	if old.service != e.service && !equalServices(old.service, e.service) {
		return false
	}
	return slices.EqualFunc(old.slices, e.slices, func(a, b *cluster.Slice) bool {
		return a == b || a.Name == b.Name && a.Cluster == b.Cluster && a.Endpoints == b.Endpoints && slices.Equal(a.Ports, b.Ports)
	})
}

func equalServices(a, b *cluster.Service) bool {
	return a.Headless == b.Headless && a.ExternalName == b.ExternalName && a.PublishNotReady == b.PublishNotReady &&
		a.Selector == b.Selector && slices.Equal(a.ClusterIPs, b.ClusterIPs) && slices.Equal(a.Ports, b.Ports) && equalExternal(a.External, b.External)
}

func equalExternal(a, b *cluster.External) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.IPs, b.IPs) && slices.Equal(a.Hosts, b.Hosts)
}

// label is a name as one label in wire form; "" if it cannot be one.
func label(name string) string {
	if name == "" || len(name) > wire.MaxLabel {
		return ""
	}
	return string([]byte{byte(len(name))}) + strings.ToLower(name)
}
