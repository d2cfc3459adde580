package kubernetes

import (
	"iter"
	"log/slog"
	"net/netip"
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
	settings settings
	log      *slog.Logger

	services        zone.Table[entry]     // by the labels "service.namespace"
	imports         zone.Table[entry]     // ServiceImports, likewise
	namespaces      zone.Table[namespace] // by the label of the namespace; exposed or not
	pods            zone.Table[podCount]
	reverse         reverseIndex
	clients         zone.Table[addrPods] // pods by address, if settings.clients asks for it
	externalReverse reverseIndex         // the addresses that k8s_external knows
	latency         *latency             // nil counts nothing

	listedKinds  atomic.Uint32 // a bit for each kind that has been listed, or is not asked for
	synced       chan struct{} // closed when that is all
	serial       atomic.Uint32 // sum over all entries and pods of exposed namespaces
	importSerial atomic.Uint32

	tableFrom int // number of endpoints from which on a Service has a table

	mu             sync.Mutex // of the writer; what follows is the writer's alone
	portSets       portSets
	sliceOwners    [cluster.Kinds]map[cluster.Key]*serviceKey // slices whose names do not tell their Services
	podObjects     map[cluster.Key]*cluster.Pod
	changes        serviceChanges          // Services being changed
	toggled        map[*namespace]struct{} // namespaces shown or hidden since the last flush
	reverseChange                          // of reverse
	externalChange reverseChange           // of outside
	reverseLen     int                     // pairs that reverse has been given

	// Memory that one draft after the other uses.
	buf         []byte
	pending     []pendingPart
	partChanges []partChange
	diff        endpointDiff
	addrSet     addrSet
}

// A change is pairs to be added to a reverse index and to be removed.
type reverseChange struct{ add, remove []addrRef }

// A podRef counts the pods of a namespace that have an address.
type podCount struct{ pods int }

// NewIndex makes an empty index, which is synced once all of kinds have been
// listed.
func NewIndex(set settings, kinds []cluster.Kind, log *slog.Logger) *Index {
	ix := &Index{settings: set, tableFrom: largeService, log: log, synced: make(chan struct{}), podObjects: map[cluster.Key]*cluster.Pod{}, toggled: map[*namespace]struct{}{}}
	ix.listedKinds.Store(allKinds)
	for _, k := range kinds {
		ix.listedKinds.Store(ix.listedKinds.Load() &^ (1 << k))
	}
	return ix
}

const allKinds = 1<<cluster.Kinds - 1

// Synced says whether the index has held the whole cluster. It then stays so:
// the last known state is served for as long as the source is away.
func (ix *Index) Synced() bool { return ix.listedKinds.Load() == allKinds }

// missing names the kinds that have not been listed.
func (ix *Index) unlisted() string {
	var names []string
	for kind := range cluster.Kinds {
		if ix.listedKinds.Load()>>kind&1 == 0 {
			names = append(names, kind.String())
		}
	}
	return strings.Join(names, ", ")
}

// has says whether the kinds have been listed: before that, what is missing may
// exist.
func (ix *Index) haveListed(a, b cluster.Kind) bool {
	want := uint32(1)<<a | 1<<b
	return ix.listedKinds.Load()&want == want
}

// Put adds or replaces objects.
func (ix *Index) Put(kind cluster.Kind, objects ...cluster.Object) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for _, o := range objects {
		ix.put(kind, o)
	}
	ix.flush(kind)
}

// Delete removes one object.
func (ix *Index) Delete(kind cluster.Kind, key cluster.Key) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.delete(kind, key)
	ix.flush(kind)
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
		if s := ix.namespace(o.Name); s != nil {
			ix.setExposed(s, true)
		}
	case *cluster.Service:
		ix.putService(kind, o)
	case *cluster.Slice:
		ix.putSlice(kind, o)
	case *cluster.Pod:
		ix.putPod(o)
	}
}

func (ix *Index) delete(kind cluster.Kind, key cluster.Key) {
	switch kind {
	case cluster.Namespaces:
		if s := ix.namespaces.Get([]byte(label(key.Name))); s != nil {
			ix.setExposed(s, false)
			ix.removeIfEmpty(s)
		}
	case cluster.Services, cluster.Imports:
		ix.deleteService(kind, key)
	case cluster.Slices, cluster.ImportSlices:
		ix.deleteSlice(kind, key)
	case cluster.Pods:
		ix.deletePod(key)
	}
}

// space finds a namespace, or makes it, not yet exposed. It is nil if the name
// cannot be a label.
func (ix *Index) namespace(name string) *namespace {
	key := label(name)
	if key == "" {
		ix.log.Warn("a namespace whose name is no DNS label has no names", "namespace", name)
		return nil
	}
	s := ix.namespaces.Get([]byte(key))
	if s == nil {
		s = &namespace{name: name}
		ix.namespaces.Set(key, s)
	}
	return s
}

// expose shows or hides all names of a namespace.
func (ix *Index) setExposed(s *namespace, exposed bool) {
	if s.exposed.Swap(exposed) == exposed {
		return
	}
	ix.toggled[s] = struct{}{}
	sign := uint32(1)
	if !exposed {
		sign = ^uint32(0)
	}
	ix.serial.Add(sign * s.hash)
	ix.importSerial.Add(sign * s.importHash)
}

// weigh adds to what a namespace's Services and pods, or its imports, are worth
// in the serial.
func (ix *Index) addHash(s *namespace, imported bool, by uint32) {
	sum, serial := &s.hash, &ix.serial
	if imported {
		sum, serial = &s.importHash, &ix.importSerial
	}
	*sum += by
	if s.exposed.Load() {
		serial.Add(by)
	}
}

// release forgets a namespace that is neither exposed nor has anything in it.
func (ix *Index) removeIfEmpty(s *namespace) {
	if s.objects == 0 && !s.exposed.Load() {
		ix.namespaces.Delete(label(s.name))
	}
}

// flush builds the drafts and shows them to readers, one Service after the
// other. Their addresses follow: until then a reverse name finds the Service
// as it was, or not at all. The kind is that of the objects that have changed.
func (ix *Index) flush(kind cluster.Kind) {
	ix.applyToggled()
	for _, d := range ix.changes.ordered {
		ix.publish(d)
	}
	for _, d := range ix.changes.ordered {
		ix.removeIfEmpty(d.key.namespace)
	}
	ix.changes.reset()
	ix.sweepPortSets()
	if ix.haveListed(kind, kind) || !ix.reverseChange.deferrable(ix.reverseLen) {
		ix.reverseLen += len(ix.reverseChange.add)
		ix.reverse.applyChange(&ix.reverseChange)
	}
	ix.externalReverse.applyChange(&ix.externalChange)
}

// finish puts a draft in the place of what it was made from.
func (ix *Index) publish(d *serviceChange) {
	all, shifts := ix.mergeSlices(d)
	defer ix.releaseBuffers()
	f := d.spec(ix)
	if len(shifts) == 0 && (d.old == nil && !f.known() || d.old != nil && d.old.equal(&f)) {
		return // as after most lists: what is there stays
	}
	e := ix.amendEntry(d.old, &f, all, shifts)
	amended := e != nil
	if !amended {
		e = ix.buildEntry(d.key, f, all)
	}
	table, before := ix.table(d.imported), uint32(0)
	if d.old != nil {
		before = d.old.hash
	}
	switch {
	case e.known() || len(e.slices()) > 0:
		table.Set(d.key.labels, e)
		if d.old == nil {
			d.key.namespace.objects++
		}
	case d.old != nil:
		table.Delete(d.key.labels)
		d.key.namespace.objects--
	}
	ix.addHash(d.key.namespace, d.imported, e.hash-before)
	switch {
	case d.imported || !d.key.namespace.exposed.Load(): // imports have no reverse names (multi-cluster specification)
	case amended:
		ix.reverseChange.addAmended(d.key, &ix.diff, &f, &ix.addrSet)
	default:
		ix.addReverseChanges(d.key, d.old, e)
	}
}

// facts are those of the Service as the draft has it.
func (d *serviceChange) spec(ix *Index) serviceSpec {
	switch {
	case d.replaced && d.service != nil:
		return ix.portSets.factsOf(d.service, ix.settings.ttl)
	case !d.replaced && d.old != nil:
		return d.old.serviceSpec
	}
	return serviceSpec{}
}

// tidy lets go of what the last draft was made from.
func (ix *Index) releaseBuffers() {
	const plenty = 1 << 8
	if cap(ix.pending) > plenty {
		ix.pending, ix.partChanges = nil, nil
	}
	if cap(ix.buf) > plenty<<8 {
		ix.buf = nil
	}
	clear(ix.pending)
	clear(ix.partChanges)
	ix.diff.reset()
	ix.addrSet.reset(0)
	clear(ix.addrSet.hostList[:cap(ix.addrSet.hostList)])
}

// growing says whether the change can wait for more, while a first list comes in
// and no reverse name has its answer from it yet: it brings little beside the so
// many pairs that there are, and would touch all their chunks. What takes pairs
// away cannot wait, since they might come back.
func (c *reverseChange) deferrable(pairs int) bool {
	return len(c.remove) == 0 && len(c.add) < max(1<<12, pairs/2)
}

// take makes a change, and empties it.
func (a *reverseIndex) applyChange(c *reverseChange) {
	a.apply(c.add, c.remove)
	c.add, c.remove = c.add[:0], c.remove[:0]
	if cap(c.add)+cap(c.remove) > 1<<10 {
		*c = reverseChange{}
	}
}

// turn notes the addresses of namespaces that have been shown or hidden. Those
// of hidden ones are not in the reverse index: nobody has to step over them.
func (ix *Index) applyToggled() {
	if len(ix.toggled) == 0 {
		return
	}
	for _, e := range ix.services.All() {
		if _, ok := ix.toggled[e.key.namespace]; !ok {
			continue
		}
		var old, now *entry
		if e.key.namespace.exposed.Load() {
			now = e
		} else {
			old = e
		}
		ix.addReverseChanges(e.key, old, now)
	}
	clear(ix.toggled)
}

// compare notes which addresses the change brings and which it takes.
func (ix *Index) addReverseChanges(of *serviceKey, old, now *entry) {
	ix.reverseChange.addDifference(of, old.addresses(), now.addresses())
	if ix.settings.k8sExternal.enabled {
		ix.externalChange.addDifference(of, old.externalAddresses(), now.externalAddresses())
	}
}

func (c *reverseChange) addDifference(of *serviceKey, had, has iter.Seq[netip.Addr]) {
	sorted := func(ips iter.Seq[netip.Addr]) []netip.Addr {
		return slices.Compact(slices.SortedFunc(ips, netip.Addr.Compare))
	}
	old := sorted(had)
	if len(old) == 0 { // as with most of a list
		for ip := range has {
			c.add = append(c.add, addrRef{ip, of})
		}
		return
	}
	now := sorted(has)
	for len(old)+len(now) > 0 {
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(now) == 0:
			order = -1
		default:
			order = old[0].Compare(now[0])
		}
		if order < 0 {
			c.remove = append(c.remove, addrRef{old[0], of})
		} else if order > 0 {
			c.add = append(c.add, addrRef{now[0], of})
		}
		if order <= 0 {
			old = old[1:]
		}
		if order >= 0 {
			now = now[1:]
		}
	}
}

// note is compare for an entry that was amended.
func (c *reverseChange) addAmended(of *serviceKey, diff *endpointDiff, f *serviceSpec, seen *addrSet) {
	c.add = f.addOnlyIn(diff.added, diff.removed, c.add, of, seen)
	c.remove = f.addOnlyIn(diff.removed, diff.added, c.remove, of, seen)
}

// only adds pairs of the addresses that count among some and not among others.
func (f *serviceSpec) addOnlyIn(some, others []endpointRef, to []addrRef, of *serviceKey, c *addrSet) []addrRef {
	c.reset(len(others))
	for i := range others {
		if f.isServed(&others[i].ep) {
			c.addAddr(others[i].ep.Addr)
		}
	}
	for i := range some {
		if ep := &some[i].ep; f.isServed(ep) && !c.hasAddr(ep.Addr) {
			to = append(to, addrRef{ep.Addr, of})
		}
	}
	return to
}

func equalExternal(a, b *cluster.External) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.IPs, b.IPs) && slices.Equal(a.Hosts, b.Hosts)
}

// label is a name as one label in wire form; "" if it cannot be one.
func label(name string) string {
	if !isLabel(name) {
		return ""
	}
	return string([]byte{byte(len(name))}) + strings.ToLower(name)
}

func isLabel(name string) bool { return name != "" && len(name) <= wire.MaxLabel }
