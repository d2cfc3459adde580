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
	set settings
	log *slog.Logger

	services zone.Table[entry] // by the labels "service.namespace"
	imports  zone.Table[entry] // ServiceImports, likewise
	spaces   zone.Table[space] // by the label of the namespace; exposed or not
	pods     zone.Table[podRef]
	reverse  reverseIndex
	clients  zone.Table[client] // pods by address, if settings.clients asks for it
	outside  reverseIndex       // the addresses that k8s_external knows
	timing   *timing            // nil counts nothing

	listed       atomic.Uint32 // a bit for each kind that has been listed, or is not asked for
	whole        chan struct{} // closed when that is all
	serial       atomic.Uint32 // sum over all entries and pods of exposed namespaces
	importSerial atomic.Uint32

	mu       sync.Mutex // of the writer; what follows is the writer's alone
	portSets portSets
	strays   [cluster.Kinds]map[cluster.Key]*home // slices whose names do not tell their Services
	podsBy   map[cluster.Key]*cluster.Pod
	drafts   drafts              // Services being changed
	turned   map[*space]struct{} // namespaces shown or hidden since the last flush
	change                       // of reverse
	beyond   change              // of outside
	reversed int                 // pairs that reverse has been given

	// Memory that one draft after the other uses.
	buf    []byte
	raws   []raw
	shifts []shift
	diff   difference
	seen   crowd
}

// A change is pairs to be added to a reverse index and to be removed.
type change struct{ add, remove []addrRef }

// A podRef counts the pods of a namespace that have an address.
type podRef struct{ n int }

// NewIndex makes an empty index, which is synced once all of kinds have been
// listed.
func NewIndex(set settings, kinds []cluster.Kind, log *slog.Logger) *Index {
	ix := &Index{set: set, log: log, whole: make(chan struct{}), podsBy: map[cluster.Key]*cluster.Pod{}, turned: map[*space]struct{}{}}
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
		if s := ix.space(o.Name); s != nil {
			ix.expose(s, true)
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
		if s := ix.spaces.Get([]byte(label(key.Name))); s != nil {
			ix.expose(s, false)
			ix.release(s)
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

// flush builds the drafts and shows them to readers, one Service after the
// other. Their addresses follow: until then a reverse name finds the Service
// as it was, or not at all. The kind is that of the objects that have changed.
func (ix *Index) flush(kind cluster.Kind) {
	ix.turn()
	for _, d := range ix.drafts.order {
		ix.finish(d)
	}
	for _, d := range ix.drafts.order {
		ix.release(d.home.space)
	}
	ix.drafts.forget()
	ix.sweep()
	if ix.has(kind, kind) || !ix.change.growing(ix.reversed) {
		ix.reversed += len(ix.change.add)
		ix.reverse.take(&ix.change)
	}
	ix.outside.take(&ix.beyond)
}

// finish puts a draft in the place of what it was made from.
func (ix *Index) finish(d *draft) {
	all, shifts := ix.plan(d)
	defer ix.tidy()
	f := d.facts(ix)
	if len(shifts) == 0 && (d.old == nil && !f.known() || d.old != nil && d.old.same(&f)) {
		return // as after most lists: what is there stays
	}
	e := ix.amend(d.old, &f, all, shifts)
	amended := e != nil
	if !amended {
		e = ix.build(d.home, f, all)
	}
	table, before := ix.table(d.imported), uint32(0)
	if d.old != nil {
		before = d.old.sum
	}
	switch {
	case e.known() || len(e.slices()) > 0:
		table.Set(d.home.key, e)
		if d.old == nil {
			d.home.space.used++
		}
	case d.old != nil:
		table.Delete(d.home.key)
		d.home.space.used--
	}
	ix.weigh(d.home.space, d.imported, e.sum-before)
	switch {
	case d.imported || !d.home.space.exposed.Load(): // imports have no reverse names (multi-cluster specification)
	case amended:
		ix.change.note(d.home, &ix.diff, &f, &ix.seen)
	default:
		ix.compare(d.home, d.old, e)
	}
}

// facts are those of the Service as the draft has it.
func (d *draft) facts(ix *Index) facts {
	switch {
	case d.changed && d.service != nil:
		return ix.portSets.factsOf(d.service, ix.set.ttl)
	case !d.changed && d.old != nil:
		return d.old.facts
	}
	return facts{}
}

// tidy lets go of what the last draft was made from.
func (ix *Index) tidy() {
	const plenty = 1 << 8
	if cap(ix.raws) > plenty {
		ix.raws, ix.shifts = nil, nil
	}
	if cap(ix.buf) > plenty<<8 {
		ix.buf = nil
	}
	clear(ix.raws)
	clear(ix.shifts)
	ix.diff.forget()
	ix.seen.expect(0)
	clear(ix.seen.hosts[:cap(ix.seen.hosts)])
}

// growing says whether the change can wait for more, while a first list comes in
// and no reverse name has its answer from it yet: it brings little beside the so
// many pairs that there are, and would touch all their chunks. What takes pairs
// away cannot wait, since they might come back.
func (c *change) growing(pairs int) bool {
	return len(c.remove) == 0 && len(c.add) < max(1<<12, pairs/2)
}

// take makes a change, and empties it.
func (a *reverseIndex) take(c *change) {
	a.apply(c.add, c.remove)
	c.add, c.remove = c.add[:0], c.remove[:0]
	if cap(c.add)+cap(c.remove) > 1<<10 {
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
		ix.compare(e.home, old, now)
	}
	clear(ix.turned)
}

// compare notes which addresses the change brings and which it takes.
func (ix *Index) compare(of *home, old, now *entry) {
	ix.change.compare(of, old.addresses(), now.addresses())
	if ix.set.external.on {
		ix.beyond.compare(of, old.fromOutside(), now.fromOutside())
	}
}

func (c *change) compare(of *home, had, has iter.Seq[netip.Addr]) {
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
func (c *change) note(of *home, diff *difference, f *facts, seen *crowd) {
	c.add = f.only(diff.fresh, diff.gone, c.add, of, seen)
	c.remove = f.only(diff.gone, diff.fresh, c.remove, of, seen)
}

// only adds pairs of the addresses that count among some and not among others.
func (f *facts) only(some, others []resident, to []addrRef, of *home, c *crowd) []addrRef {
	c.expect(len(others))
	for i := range others {
		if f.counts(&others[i].ep) {
			c.addr(others[i].ep.Addr)
		}
	}
	for i := range some {
		if ep := &some[i].ep; f.counts(ep) && !c.hasAddr(ep.Addr) {
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
