package kubernetes

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// Records implements [zone.Version]. It yields the records of a new version, with all
// changes so far. Entries are immutable, so it holds no lock while it makes their records,
// and its memory is a pointer for each Service.
func (v *liveVersion) Records(yield func([]byte) bool) {
	l, g := v.zone.liveZones, newGenerator(v.zone.records.Handler, v.zone.records.zone)
	l.index.Lock()
	changed := l.newVersions()
	soa, apex := v.zone.current.Load().soa, v.zone.apex
	rest, end := g.newView()
	defer end()
	l.index.Unlock()
	l.notify(changed)
	if !yield(soa) {
		return
	}

	for r := range apex {
		if !yield([]byte(r)) {
			return
		}
	}

	rest(yield)
}

// newView returns an iterator over the present records below the zone's name. The caller holds the
// lock of the index until it returns, and calls end without it.
func (g *generator) newView() (records iter.Seq[[]byte], end func()) {
	if g.zone.reverse {
		v := g.newReverseView()
		return v.records, v.close
	}
	entries := slices.Collect(g.index.VisibleEntries(g.view))

	var pods []string
	if g.podMode == podsVerified && !g.zone.multicluster {
		for key := range g.index.PodKeys() {
			if g.index.IsExposed(key[:1+key[0]]) {
				pods = append(pods, key)
			}
		}
	}

	return func(yield func([]byte) bool) {
		for _, e := range entries {
			if !g.entryRecords(e, yield) {
				return
			}
		}
		for _, key := range pods {
			if !g.podRecord(key, yield) {
				return
			}
		}
	}, func() {}
}

// A reverseView is the state of the reverse indexes at a moment: their leaves are immutable,
// and an undo records the Services that change.
type reverseView struct {
	*generator
	prefix netip.Prefix
	refs   []*index.RefCursor // of the reverse indexes
	undo   *index.Undo
}

// newReverseView returns a view of the present state. The caller holds the lock of the index.
func (g *generator) newReverseView() *reverseView {
	v := &reverseView{generator: g}
	v.prefix, _ = wire.ParseReverse([]byte(g.zone.name))
	for _, x := range g.index.ReverseOf(g.view) {
		v.refs = append(v.refs, x.NewRefCursor(v.prefix))
	}
	v.undo = g.index.AddUndo(nil)
	return v
}

func (v *reverseView) close() {
	v.index.Lock()
	defer v.index.Unlock()
	v.index.RemoveUndo(v.undo)
}

// group is the number of addresses whose records are made while the index is locked.
const group = 64

// records yields the PTR records.
func (v *reverseView) records(yield func([]byte) bool) {
	if v.primary == "" || !v.prefix.IsValid() {
		return
	}
	var records []byte
	for more := true; more; {
		if records, more = v.appendGroup(records[:0]); !zone.EachRecord(records, yield) {
			return
		}
	}
}

// appendGroup appends the records of some addresses, and reports whether there are more
// addresses.
func (v *reverseView) appendGroup(records []byte) ([]byte, bool) {
	v.index.Lock()
	defer v.index.Unlock()
	at := v.stateBefore(v.undo)
	for range group {
		ip := v.next()
		if !ip.IsValid() {
			return records, false
		}
		var services []*index.ServiceKey
		for _, refs := range v.refs {
			services = refs.AppendAt(ip, services)
		}
		if v.prefix.Contains(ip) {
			v.pointers(ip, sortServices(services), at, func(r []byte) { records = append(records, r...) })
		}
	}
	return records, true
}

// next returns the next address; it is invalid at the end.
func (v *reverseView) next() (first netip.Addr) {
	for _, refs := range v.refs {
		if ip := refs.Addr(); ip.IsValid() && (!first.IsValid() || ip.Less(first)) {
			first = ip
		}
	}
	return first
}
