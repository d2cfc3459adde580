package kubernetes

import (
	"strings"

	"github.com/seamark/seamark/cluster"
)

// A resident is one endpoint of a slice.
type resident struct {
	of *portSet
	ep cluster.Endpoint
}

// A difference is the endpoints by which two states of a Service's slices
// differ, each whole: one that becomes ready is gone, and it is fresh.
type difference struct{ gone, fresh []resident }

// amend makes the entry of old's Service after a change of some of its slices,
// by the endpoints that differ: it comes out as build would make it, at the cost
// of those slices. It is nil, and then build has to, if endpoints have to do with
// each other, or if more changes than the endpoints.
func (ix *Index) amend(old *entry, f *facts, all []raw, shifts []shift) *entry {
	x := ix.set.external
	switch {
	case old == nil || old.mixed != nil || !old.exists || old.alias || !old.same(f):
		return nil
	case x.on && x.headless && old.headless: // the outside has the addresses too
		return nil
	}
	diff := &ix.diff
	for _, s := range shifts {
		if s.to != nil && !s.to.of.dotted {
			return nil
		}
		diff.add(s)
	}
	if !f.stay(all, diff.fresh, &ix.seen) {
		return nil
	}
	e := &entry{home: old.home, facts: old.facts, outside: old.outside}
	if old.headless {
		e.records, e.ends = "", 0
	}
	if len(all) > 0 {
		e.parts = make([]part, len(all))
	}
	for i, r := range all {
		if r.packed != nil {
			e.parts[i] = *r.packed
		} else {
			e.parts[i] = ix.pack(f, r, f.headless)
		}
	}
	e.settle(ix.set, f.headless)
	if !e.exists {
		return nil
	}
	e.sum = old.sum
	h := fnv(fnvBasis, e.home.key)
	for i := range diff.gone {
		if m := &diff.gone[i]; f.counts(&m.ep) {
			e.sum -= worth(h, m.of, &m.ep)
		}
	}
	for i := range diff.fresh {
		if m := &diff.fresh[i]; f.counts(&m.ep) {
			e.sum += worth(h, m.of, &m.ep)
		}
	}
	return e
}

// add puts the endpoints by which the part and the slice differ.
func (d *difference) add(s shift) {
	var had, has cluster.Endpoints
	if s.from != nil {
		had = s.from.endpoints()
	}
	if s.to != nil {
		has = s.to.endpoints
	}
	if s.from != nil && s.to != nil && s.from.of.equal(s.to.of) {
		had, has = behindCommon(had, has)
	}
	gone, fresh := len(d.gone), len(d.fresh)
	for ep := range had.All() {
		d.gone = append(d.gone, resident{s.from.of, ep})
	}
	for ep := range has.All() {
		d.fresh = append(d.fresh, resident{s.to.of, ep})
	}
	if s.from == nil || s.to == nil || !s.from.of.equal(s.to.of) {
		return
	}
	for len(d.gone) > gone && len(d.fresh) > fresh && d.gone[len(d.gone)-1].ep == d.fresh[len(d.fresh)-1].ep {
		d.gone, d.fresh = d.gone[:len(d.gone)-1], d.fresh[:len(d.fresh)-1]
	}
}

// behindCommon cuts off what both begin with.
func behindCommon(a, b cluster.Endpoints) (cluster.Endpoints, cluster.Endpoints) {
	var ep cluster.Endpoint
	for a != "" && b != "" {
		rest := a.Next(&ep)
		n := len(a) - len(rest)
		if len(b) < n || a[:n] != b[:n] {
			break
		}
		a, b = rest, b[n:]
	}
	return a, b
}

// forget drops what has been compared, and what a large change has grown.
func (d *difference) forget() {
	if cap(d.gone)+cap(d.fresh) > 1<<10 {
		*d = difference{}
		return
	}
	clear(d.gone[:cap(d.gone)])
	clear(d.fresh[:cap(d.fresh)])
	d.gone, d.fresh = d.gone[:0], d.fresh[:0]
}

// stay says whether the endpoints of all slices have nothing to do with each
// other, if they had not before these came.
func (f *facts) stay(all []raw, fresh []resident, seen *crowd) bool {
	if len(fresh) == 0 {
		return true
	}
	seen.expect(len(fresh))
	want := 0 // addresses and hostnames that are to be found
	for i := range fresh {
		ep := &fresh[i].ep
		if ambiguous(ep) || f.has(ep.Addr) || !seen.addr(ep.Addr) || ep.Hostname != "" && !seen.host(ep.Hostname) {
			return false
		}
		want++
		if ep.Hostname != "" {
			want++
		}
	}
	for i := range all {
		if all[i].packed != nil && !seen.perhapsIn(string(all[i].endpoints)) {
			continue
		}
		for ep := range all[i].endpoints.All() {
			if seen.hasAddr(ep.Addr) {
				want--
			}
			if ep.Hostname != "" && seen.hasHost(ep.Hostname) {
				want--
			}
		}
	}
	return want == 0
}

// perhapsIn is false if none of the crowd is among packed endpoints. Where there
// are few, that is told by their bytes.
func (c *crowd) perhapsIn(packed string) bool {
	if c.addrs != nil || len(c.few) > 4 {
		return true
	}
	for _, ip := range c.few {
		var room [16]byte
		if strings.Contains(packed, string(appendAddr(room[:0], ip))) {
			return true
		}
	}
	for _, name := range c.hosts {
		if strings.Contains(packed, name) {
			return true
		}
	}
	return false
}
