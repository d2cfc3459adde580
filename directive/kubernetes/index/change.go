package index

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
)

// A serviceChange is the pending change of a Service or ServiceImport, which the
// next flush applies.
type serviceChange struct {
	key      *ServiceKey
	imported bool
	old      *Entry           // the entry that readers see; nil if there is none
	service  *cluster.Service // nil if the object is deleted
	replaced bool             // the Service's object has changed
	slices   []sliceChange
}

// A sliceChange replaces one slice, or removes it if slice is nil. The later of two
// for the same slice counts.
type sliceChange struct {
	name  string
	slice *cluster.Slice
}

// serviceChanges are the changes since the last flush. The zero value is empty.
type serviceChanges struct {
	ordered []*serviceChange
	byKey   [2]map[string]*serviceChange // by ServiceKey.Labels; Services, then imports
	buf     []byte                       // for building a key
}

// get returns the change of the Service with a key; nil if there is none.
func (cs *serviceChanges) get(imported bool, key []byte) *serviceChange {
	return cs.byKey[tableIndex(imported)][string(key)]
}

func tableIndex(imported bool) int {
	if imported {
		return 1
	}
	return 0
}

func (cs *serviceChanges) add(c *serviceChange) {
	known := &cs.byKey[tableIndex(c.imported)]
	if *known == nil {
		*known = map[string]*serviceChange{}
	}
	(*known)[c.key.Labels] = c
	cs.ordered = append(cs.ordered, c)
}

// reset removes all changes, and the memory of a large list.
func (cs *serviceChanges) reset() {
	if len(cs.ordered) > groupServices {
		*cs = serviceChanges{}
		return
	}
	clear(cs.ordered)
	cs.ordered = cs.ordered[:0]
	clear(cs.byKey[0])
	clear(cs.byKey[1])
}

// changeOf returns the pending change of a Service, which it creates if there is none.
// It returns nil if the name is not a DNS label.
func (ix *Index) changeOf(imported bool, namespace, name string) *serviceChange {
	key := appendServiceKey(ix.changes.buf[:0], namespace, name)
	if key == nil {
		ix.log.Warn("kubernetes: Ignored a Service whose name is not a DNS label",
			"namespace", namespace, "service", name)
		return nil
	}
	ix.changes.buf = key[:0]
	if c := ix.existingChange(imported, key); c != nil {
		return c
	}

	k := &ServiceKey{Labels: string(key), Namespace: ix.ensureNamespace(namespace)}
	c := &serviceChange{key: k, imported: imported}
	ix.changes.add(c)
	return c
}

// existingChange is changeOf for a Service that has an entry or a pending change; it
// returns nil for others.
func (ix *Index) existingChange(imported bool, key []byte) *serviceChange {
	if c := ix.changes.get(imported, key); c != nil {
		return c
	}
	old := ix.table(imported).Get(key)
	if old == nil {
		return nil
	}
	c := &serviceChange{key: old.Key, imported: imported, old: old}
	ix.changes.add(c)
	return c
}

// appendServiceKey appends the labels of a Service; it returns nil if a name is not a
// label.
func appendServiceKey(buf []byte, namespace, name string) []byte {
	for _, s := range [2]string{name, namespace} {
		if !isLabel(s) {
			return nil
		}
		buf = append(buf, byte(len(s)))
		for i := range len(s) {
			c := s[i]
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			buf = append(buf, c)
		}
	}
	return buf
}

func (ix *Index) putService(kind cluster.Kind, s *cluster.Service) {
	if c := ix.changeOf(kind == cluster.Imports, s.Namespace, s.Name); c != nil {
		c.service, c.replaced = s, true
	}
}

func (ix *Index) deleteService(kind cluster.Kind, key cluster.Key) {
	if c := ix.existingChange(kind == cluster.Imports, appendServiceKey(nil, key.Namespace, key.Name)); c != nil {
		c.service, c.replaced = nil, true
	}
}

// longestName is the longest name of a slice that a part can hold.
const longestName = 1<<16 - 1

func (ix *Index) putSlice(kind cluster.Kind, sl *cluster.Slice) {
	if len(sl.Name) > longestName {
		ix.log.Warn("kubernetes: Ignored an EndpointSlice whose name is too long",
			"namespace", sl.Namespace, "service", sl.Service)
		return
	}

	c := ix.changeOf(kind == cluster.ImportSlices, sl.Namespace, sl.Service)
	// The slice may have named another Service before.
	if at := ix.ownerOf(kind, sl.Key()); at != nil && at != c {
		at.slices = append(at.slices, sliceChange{name: sl.Name})
	}
	if c == nil {
		delete(ix.sliceOwners[kind], sl.Key())
		return
	}

	if serviceOfSlice(sl.Name) == strings.ToLower(sl.Service) {
		delete(ix.sliceOwners[kind], sl.Key())
	} else {
		if ix.sliceOwners[kind] == nil {
			ix.sliceOwners[kind] = map[cluster.Key]*ServiceKey{}
		}
		ix.sliceOwners[kind][sl.Key()] = c.key
	}
	c.slices = append(c.slices, sliceChange{sl.Name, sl})
}

func (ix *Index) deleteSlice(kind cluster.Kind, key cluster.Key) {
	if c := ix.ownerOf(kind, key); c != nil {
		c.slices = append(c.slices, sliceChange{name: key.Name})
		delete(ix.sliceOwners[kind], key)
	}
}

// ownerOf returns the change of the Service that a slice belongs to; nil if there is
// none.
func (ix *Index) ownerOf(kind cluster.Kind, key cluster.Key) *serviceChange {
	imported := kind == cluster.ImportSlices
	if k := ix.sliceOwners[kind][key]; k != nil {
		return ix.existingChange(imported, []byte(k.Labels))
	}
	owner := appendServiceKey(ix.changes.buf[:0], key.Namespace, serviceOfSlice(key.Name))
	if owner == nil {
		return nil
	}
	ix.changes.buf = owner[:0]
	return ix.existingChange(imported, owner)
}

// serviceOfSlice returns the Service that a slice belongs to by its name,
// SERVICE-xxxxx, which is how Kubernetes' controllers name slices. For slices with
// other names the Service is in Index.sliceOwners.
func serviceOfSlice(slice string) string {
	return strings.ToLower(slice[:max(0, strings.LastIndexByte(slice, '-'))])
}

// sortSlices sorts the changes of slices by name, and drops changes that a later one
// replaces.
func (c *serviceChange) sortSlices() {
	if len(c.slices) < 2 {
		return
	}
	slices.SortStableFunc(c.slices, func(a, b sliceChange) int { return cmp.Compare(a.name, b.name) })
	last := c.slices[:0]
	for i, t := range c.slices {
		if i+1 == len(c.slices) || c.slices[i+1].name != t.name {
			last = append(last, t)
		}
	}
	clear(c.slices[len(last):])
	c.slices = last
}

// A partChange is a part before and after the change; nil is none.
type partChange struct {
	old *Part
	now *pendingPart
}

// mergeSlices merges the changes of slices with the old entry's parts. It returns the
// slices after the change, in the order of their names, and the parts that differ.
func (ix *Index) mergeSlices(c *serviceChange) (all []pendingPart, changes []partChange) {
	c.sortSlices()
	var parts []Part // of the old entry, by name as well
	if c.old != nil {
		parts = c.old.Slices()
	}
	all, changes = ix.pending[:0], ix.partChanges[:0]
	all = slices.Grow(all, len(parts)+len(c.slices)) // changes point into it

	// Both lists are in the order of names. What is not changed stays as it is.
	keep := func(p *Part) { all = append(all, pendingPart{p.Name(), p.Ports, p.Endpoints(), p}) }
	for _, changed := range c.slices {
		for len(parts) > 0 && parts[0].Name() < changed.name {
			keep(&parts[0])
			parts = parts[1:]
		}

		var change partChange
		if len(parts) > 0 && parts[0].Name() == changed.name {
			change.old, parts = &parts[0], parts[1:]
		}
		if sl := changed.slice; sl != nil {
			ports := ix.portSets.get(sl.Cluster, sl.Ports)
			all = append(all, pendingPart{sl.Name, ports, readyFirst(sl.Endpoints), nil})
			change.now = &all[len(all)-1]
		}

		switch old, now := change.old, change.now; {
		case old == nil && now == nil: // a slice that has come and gone
		case old != nil && now != nil && old.Ports.equal(now.ports) && old.Endpoints() == now.endpoints:
			now.unchanged = old
		default:
			changes = append(changes, change)
		}
	}
	for i := range parts {
		keep(&parts[i])
	}

	ix.pending, ix.partChanges = all, changes
	return all, changes
}

// readyFirst returns the endpoints in an order in which the ready ones are first,
// so that an answer does not read the rest.
func readyFirst(es cluster.Endpoints) cluster.Endpoints {
	notReady, inOrder := false, true
	for ep := range es.All() {
		inOrder = inOrder && !(notReady && ep.Ready)
		notReady = notReady || !ep.Ready
	}
	if inOrder {
		return es
	}

	buf := make([]byte, 0, len(es))
	for _, ready := range [2]bool{true, false} {
		for ep := range es.All() {
			if ep.Ready == ready {
				buf = cluster.AppendEndpoint(buf, ep)
			}
		}
	}
	return cluster.Endpoints(buf)
}
