package kubernetes

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
)

// A draft is what is to become of a Service, or ServiceImport, at the next
// flush.
type draft struct {
	home     *home
	imported bool
	old      *entry           // what readers see; nil if nothing is there
	service  *cluster.Service // if its object has changed; nil is deleted
	changed  bool             // the object has
	fates    []fate
}

// A fate is what becomes of one slice: it is replaced, or if to is nil deleted.
// Of two for one slice the later one counts.
type fate struct {
	name string
	to   *cluster.Slice
}

// drafts are those since the last flush. The zero value is none.
type drafts struct {
	order []*draft
	known [2]map[string]*draft // by the key of the home; those of imports last
	buf   []byte               // of a key
}

// of finds the draft of a key.
func (ds *drafts) of(imported bool, key []byte) *draft { return ds.known[order(imported)][string(key)] }

func order(imported bool) int {
	if imported {
		return 1
	}
	return 0
}

func (ds *drafts) add(d *draft) {
	known := &ds.known[order(d.imported)]
	if *known == nil {
		*known = map[string]*draft{}
	}
	(*known)[d.home.key] = d
	ds.order = append(ds.order, d)
}

// forget drops all drafts, and what a list of many has grown.
func (ds *drafts) forget() {
	if len(ds.order) > 64 {
		*ds = drafts{}
		return
	}
	clear(ds.order)
	ds.order = ds.order[:0]
	clear(ds.known[0])
	clear(ds.known[1])
}

// draft gives that of a Service, to be changed until the next flush; nil if the
// name can have none.
func (ix *Index) draft(imported bool, namespace, name string) *draft {
	key := appendServiceKey(ix.drafts.buf[:0], namespace, name)
	if key == nil {
		ix.log.Warn("a Service whose name is no DNS label has no names", "namespace", namespace, "service", name)
		return nil
	}
	ix.drafts.buf = key[:0]
	if d := ix.existing(imported, key); d != nil {
		return d
	}
	d := &draft{home: &home{string(key), ix.space(namespace)}, imported: imported}
	ix.drafts.add(d)
	return d
}

// existing is draft for a Service of which there is something already.
func (ix *Index) existing(imported bool, key []byte) *draft {
	if d := ix.drafts.of(imported, key); d != nil {
		return d
	}
	old := ix.table(imported).Get(key)
	if old == nil {
		return nil
	}
	d := &draft{home: old.home, imported: imported, old: old}
	ix.drafts.add(d)
	return d
}

// appendServiceKey writes the labels of a Service; nil if a name is no label.
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
	if d := ix.draft(kind == cluster.Imports, s.Namespace, s.Name); d != nil {
		d.service, d.changed = s, true
	}
}

func (ix *Index) deleteService(kind cluster.Kind, key cluster.Key) {
	if d := ix.existing(kind == cluster.Imports, appendServiceKey(nil, key.Namespace, key.Name)); d != nil {
		d.service, d.changed = nil, true
	}
}

// longestName is what a part can hold.
const longestName = 1<<16 - 1

func (ix *Index) putSlice(kind cluster.Kind, sl *cluster.Slice) {
	if len(sl.Name) > longestName {
		ix.log.Warn("an EndpointSlice with a name that no API server lets pass is ignored", "namespace", sl.Namespace, "service", sl.Service)
		return
	}
	d := ix.draft(kind == cluster.ImportSlices, sl.Namespace, sl.Service)
	// It may have belonged to another Service.
	if at := ix.keeper(kind, sl.Key()); at != nil && at != d {
		at.fates = append(at.fates, fate{name: sl.Name})
	}
	if d == nil {
		delete(ix.strays[kind], sl.Key())
		return
	}
	if derived(sl.Name) == strings.ToLower(sl.Service) {
		delete(ix.strays[kind], sl.Key())
	} else {
		if ix.strays[kind] == nil {
			ix.strays[kind] = map[cluster.Key]*home{}
		}
		ix.strays[kind][sl.Key()] = d.home
	}
	d.fates = append(d.fates, fate{sl.Name, sl})
}

func (ix *Index) deleteSlice(kind cluster.Kind, key cluster.Key) {
	if d := ix.keeper(kind, key); d != nil {
		d.fates = append(d.fates, fate{name: key.Name})
		delete(ix.strays[kind], key)
	}
}

// keeper gives the draft of the Service that a slice belongs to, if to any.
func (ix *Index) keeper(kind cluster.Kind, key cluster.Key) *draft {
	imported := kind == cluster.ImportSlices
	if h := ix.strays[kind][key]; h != nil {
		return ix.existing(imported, []byte(h.key))
	}
	of := appendServiceKey(ix.drafts.buf[:0], key.Namespace, derived(key.Name))
	if of == nil {
		return nil
	}
	ix.drafts.buf = of[:0]
	return ix.existing(imported, of)
}

// derived is the Service that a slice belongs to by its name, SERVICE-xxxxx, as
// Kubernetes' own controllers give it. Slices of other names are strays: they
// are noted one by one.
func derived(slice string) string {
	return strings.ToLower(slice[:max(0, strings.LastIndexByte(slice, '-'))])
}

// settle sorts the fates, and drops those that others have overtaken.
func (d *draft) settle() {
	if len(d.fates) < 2 {
		return
	}
	slices.SortStableFunc(d.fates, func(a, b fate) int { return cmp.Compare(a.name, b.name) })
	last := d.fates[:0]
	for i, t := range d.fates {
		if i+1 == len(d.fates) || d.fates[i+1].name != t.name {
			last = append(last, t)
		}
	}
	clear(d.fates[len(last):])
	d.fates = last
}

// A shift is what becomes of one part: nil is none.
type shift struct {
	from *part
	to   *raw
}

// plan merges the fates with the parts that there are: the slices as they will
// be, in order of their names, and which of them differ.
func (ix *Index) plan(d *draft) (all []raw, shifts []shift) {
	d.settle()
	all, shifts = ix.raws[:0], ix.shifts[:0]
	var parts []part
	if d.old != nil {
		parts = d.old.slices()
	}
	fates := d.fates
	all = slices.Grow(all, len(parts)+len(fates)) // shifts point into it
	for len(parts) > 0 || len(fates) > 0 {
		order := 0
		switch {
		case len(parts) == 0:
			order = 1
		case len(fates) == 0:
			order = -1
		default:
			order = cmp.Compare(parts[0].name(), fates[0].name)
		}
		var from *part
		var to *raw
		if order <= 0 {
			from, parts = &parts[0], parts[1:]
		}
		if order >= 0 {
			if sl := fates[0].to; sl != nil {
				all = append(all, raw{sl.Name, ix.portSets.get(sl.Cluster, sl.Ports), sl.Endpoints, nil})
				to = &all[len(all)-1]
			}
			fates = fates[1:]
		} else {
			all = append(all, raw{from.name(), from.of, from.endpoints(), from})
			continue
		}
		switch {
		case from == nil && to == nil:
		case from != nil && to != nil && from.of.equal(to.of) && from.endpoints() == to.endpoints:
			to.packed = from
		default:
			shifts = append(shifts, shift{from, to})
		}
	}
	ix.raws, ix.shifts = all, shifts
	return all, shifts
}
