package kubernetes

import (
	"bytes"
	"iter"
	"maps"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/wire"
)

// addDifferences adds the differences between the state of u and the present one. The
// caller holds the lock of the index.
func (g *generator) addDifferences(d *differences, u *index.Undo) {
	if g.zone.reverse {
		g.addReverseDifferences(d, u)
		return
	}
	for _, c := range u.EntryChanges(g.view) {
		if g.addEntryDifferences(d, c); d.incomplete() {
			return
		}
	}
	if g.podMode == podsVerified && !g.zone.multicluster {
		g.addPodDifferences(d, u)
	}
}

// addEntryDifferences adds the records that differ between two entries of a Service. It
// compares the answers for names that may differ.
func (g *generator) addEntryDifferences(d *differences, c index.EntryChange) {
	var names [2]nameSet // of each entry: other names may be answered, but have no records
	for i, e := range c.Sides() {
		names[i] = nameSet{}
		if e != nil {
			g.serviceNames(e, names[i])
		}
	}

	for ep, e := range changedEndpoints(c) {
		for _, label := range g.endpointLabels(&ep.Endpoint) {
			if !d.spend(g.namesCost(e, ep.ports)) {
				return
			}
			g.endpointNames(e, ep.ports, label, names[0])
			g.endpointNames(e, ep.ports, label, names[1])
		}
	}

	both := maps.Clone(names[0])
	maps.Copy(both, names[1])
	for labels := range both {
		for _, t := range [...]wire.Type{wire.TypeA, wire.TypeAAAA, wire.TypeSRV, wire.TypeCNAME} {
			var sets [2][][]byte
			for i, e := range c.Sides() {
				if _, ok := names[i][labels]; ok {
					sets[i] = g.rrset(e, labels, t)
					if !d.spend(len(g.query.Answer.Buf)) {
						return
					}
				}
			}

			if old, now := trimEqual(sets[0], sets[1]); len(old)+len(now) > 0 {
				d.addSets(g.ownedSet(old), g.ownedSet(now))
			}
		}
	}
}

// rrset returns the records of a name below a Service as they are in an answer, without
// their owner; none without an entry.
func (g *generator) rrset(e *index.Entry, labels string, t wire.Type) (records [][]byte) {
	if e == nil || !slices.Contains(typesOf(e, labels), t) {
		return nil
	}
	g.resolveEntry(e, labels, t)
	a := &g.query.Answer
	buf := bytes.Clone(a.Buf)
	for off := a.RecordsOffset(); off < len(buf); {
		r, ok := wire.ReadRecord(buf, off)
		if !ok {
			break
		}
		if r.Type == t {
			records = append(records, buf[r.Head:r.Next])
		}
		off = r.Next
	}
	return records
}

// trimEqual removes the records that two RRsets begin and end with.
func trimEqual(old, now [][]byte) (_, _ [][]byte) {
	for len(old) > 0 && len(now) > 0 && bytes.Equal(old[0], now[0]) {
		old, now = old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && bytes.Equal(old[len(old)-1], now[len(now)-1]) {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	return old, now
}

// ownedSet returns the set of records with the name of the last query as their owner.
func (g *generator) ownedSet(records [][]byte) map[string]struct{} {
	set := map[string]struct{}{}
	for _, r := range records {
		set[string(g.name)+string(r)] = struct{}{}
	}
	return set
}

// A portEndpoint is an endpoint and its ports.
type portEndpoint struct {
	ports *index.PortSet
	cluster.Endpoint
}

// changedEndpoints returns the endpoints that one of the entries has and the other lacks, with
// their entries; all endpoints if the Service's own object differs.
func changedEndpoints(c index.EntryChange) iter.Seq2[portEndpoint, *index.Entry] {
	return func(yield func(portEndpoint, *index.Entry) bool) {
		whole := c.Old == nil || c.Now == nil || !c.Old.Spec.Equal(&c.Now.Spec)
		sides := [2]map[portEndpoint]struct{}{{}, {}}
		for i, e := range c.Sides() {
			if e == nil {
				continue
			}

			var equal map[string]*index.Part
			if !whole && c.Old.Merged() == nil && c.Now.Merged() == nil {
				equal = partsByName(c.Sides()[1-i])
			}

			for n := range e.Parts {
				p := &e.Parts[n]
				if o := equal[p.Name()]; o != nil && o.Ports == p.Ports && o.Endpoints() == p.Endpoints() {
					continue
				}
				for ep := range p.Endpoints().All() {
					if e.IsServed(&ep) {
						sides[i][portEndpoint{p.Ports, ep}] = struct{}{}
					}
				}
			}
		}

		for i, e := range c.Sides() {
			for ep := range sides[i] {
				if _, both := sides[1-i][ep]; (!both || whole) && !yield(ep, e) {
					return
				}
			}
		}
	}
}

func partsByName(e *index.Entry) map[string]*index.Part {
	parts := make(map[string]*index.Part, len(e.Parts))
	for i := range e.Parts {
		parts[e.Parts[i].Name()] = &e.Parts[i]
	}
	return parts
}

// addPodDifferences adds the differences of the records of pods.
func (g *generator) addPodDifferences(d *differences, u *index.Undo) {
	for key, had := range u.PodChanges() {
		n := 1
		if had {
			n = -1
		}
		g.podRecord(key, func(r []byte) bool {
			d.add(r, n)
			return true
		})
	}
}

// podRecord yields the record of a pod's address. It returns false if yield did.
func (g *generator) podRecord(key string, yield func([]byte) bool) bool {
	ns, ip := key[:1+key[0]], index.PodAddr(key)
	g.name = append(g.name[:0], 0)
	g.name = index.AppendDashed(g.name, ip)
	g.name[0] = byte(len(g.name) - 1)
	g.name = append(append(append(g.name, ns...), "\x03pod"...), g.zone.name...)
	if len(g.name) > wire.MaxName {
		return true
	}
	g.resolve(g.name, index.FamilyOf(ip), func(l *lookup) result {
		l.address(ip)
		return isPod
	})
	return g.each(yield)
}
