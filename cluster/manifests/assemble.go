package manifests

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// An assembly is the state of the cluster that all manifests describe.
type assembly struct {
	f          *folder
	found      map[itemKey]located
	order      []located // of found, by file and place
	namespaces map[string]located
	given      map[cluster.Key]netip.Addr // allocated ClusterIPs
	objects    objects
	warnings   []warning
}

type itemKey struct {
	kind string
	cluster.Key
}

// A located item is an item and its file.
type located struct {
	*item
	file string
}

// assemble returns the state for the sink. It depends on the files' contents alone,
// except that the first file in order of their names wins if several define the same
// object.
func (f *folder) assemble() *assembly {
	a := &assembly{f: f, found: map[itemKey]located{}, namespaces: map[string]located{}}
	for k := range a.objects {
		a.objects[k] = map[cluster.Key]placed{}
	}
	for _, file := range slices.Sorted(maps.Keys(f.files)) {
		for _, it := range f.files[file].items {
			a.find(located{it, file})
		}
	}

	a.addNamespaces()
	a.addServices()
	if !f.opts.NoEndpoints {
		a.addSlices()
		a.derive()
	}

	for _, l := range a.order {
		kind, known := cluster.KindNamed(l.kind)
		if known && kind > cluster.Slices && l.object != nil { // the others have been added
			a.put(kind, l, l.object)
		}
	}
	return a
}

// warn adds a warning about an item.
func (a *assembly) warn(l located, msg string, attrs ...any) {
	about := []any{
		"file", a.f.path(l.file), "line", l.line, "kind", l.kind, "namespace", l.key.Namespace, "name", l.key.Name,
	}
	a.warnings = append(a.warnings, warning{msg, append(about, attrs...)})
}

// find adds an item, unless its object was defined before.
func (a *assembly) find(l located) {
	if ns := l.key.Namespace; ns != "" && a.namespaces[ns].item == nil {
		a.namespaces[ns] = l
	}
	if l.kind == "" {
		return
	}
	key := itemKey{l.kind, l.key}
	if first, ok := a.found[key]; ok {
		a.warn(l, "Ignored duplicate object", "first", fmt.Sprintf("%s:%d", a.f.path(first.file), first.line))
		return
	}
	a.found[key] = l
	a.order = append(a.order, l)
}

// put adds an object if the options select it. The options of labels do not apply to
// ServiceImports and DNSEndpoints.
func (a *assembly) put(k cluster.Kind, l located, o cluster.Object) {
	selected := a.f.scope.has(l.item)
	if k == cluster.Imports || k == cluster.DNSEndpoints {
		selected = a.f.scope.hasNamespace(l.key.Namespace)
	}
	if selected {
		a.objects[k][o.Key()] = placed{o, l}
	}
}

// addNamespaces adds each namespace that has an object.
func (a *assembly) addNamespaces() {
	for name := range a.namespaces {
		if _, ok := a.found[itemKey{"Namespace", cluster.Key{Name: name}}]; !ok && a.f.scope.exposes(name, nil) {
			full := &api.Namespace{Meta: api.Meta{Name: name}}
			a.addNamespace(name, api.Slimmer{Options: a.f.opts}.Namespace(full), a.namespaces[name])
		}
	}
	for _, l := range a.order {
		if l.kind == "Namespace" && l.wanted {
			a.addNamespace(l.key.Name, l.object, l)
		}
	}
}

func (a *assembly) addNamespace(name string, o cluster.Object, from located) {
	if a.f.scope.hasNamespace(name) {
		a.objects[cluster.Namespaces][cluster.Key{Name: name}] = placed{o, from}
	}
}

// addServices adds Services and allocates missing ClusterIPs. It allocates for all
// Services, so that the addresses do not depend on the options.
func (a *assembly) addServices() {
	var lacking []cluster.Key
	taken := map[netip.Addr]bool{}
	for _, l := range a.order {
		if l.kind != "Service" {
			continue
		}
		if l.needs != nil && l.needs.address {
			lacking = append(lacking, l.key)
		}
		for _, ip := range serviceOf(l.object).ClusterIPs {
			taken[ip] = true
		}
	}

	a.given = allocate(lacking, taken)
	for _, l := range a.order {
		if l.kind != "Service" {
			continue
		}
		s := l.object
		if l.needs != nil && l.needs.address {
			if ip, ok := a.given[l.key]; ok {
				s = withAddress(s, ip)
			} else {
				a.warn(l, "No clusterIP left in 10.96.0.0/16")
			}
		}
		a.put(cluster.Services, l, s)
	}
}

// addSlices adds EndpointSlices, and slices mirrored from the Endpoints of Services
// without EndpointSlices.
func (a *assembly) addSlices() {
	has := a.serviced("EndpointSlice")
	for _, l := range a.order {
		if l.kind != "EndpointSlice" && (l.kind != "Endpoints" || has[l.key]) {
			continue
		}
		if own, ok := l.object.(*cluster.Slice); ok {
			a.addSlice(l, own)
		}
		for _, s := range l.mirrors {
			a.addSlice(l, s)
		}
	}
}

func (a *assembly) addSlice(l located, s *cluster.Slice) {
	kind, owner := cluster.Slices, "Service"
	if s.Cluster != "" {
		kind, owner = cluster.ImportSlices, "ServiceImport"
	}
	if _, ok := a.found[itemKey{owner, cluster.Key{Namespace: s.Namespace, Name: s.Service}}]; !ok {
		a.warn(l, "Owner not found in the manifests", "owner_kind", owner, "service", s.Service)
	}
	a.put(kind, l, s)
}

// serviced returns the Services that have an object of that kind.
func (a *assembly) serviced(kind string) map[cluster.Key]bool {
	has := map[cluster.Key]bool{}
	for _, l := range a.order {
		if l.kind == kind && l.service != "" {
			has[cluster.Key{Namespace: l.key.Namespace, Name: l.service}] = true
		}
	}
	return has
}

// derive adds slices made from Pods for Services without other slices.
func (a *assembly) derive() {
	has := a.serviced("EndpointSlice")
	maps.Copy(has, a.serviced("Endpoints"))
	var pods []*folderPod
	for _, l := range a.order {
		if l.pod != nil {
			pods = append(pods, l.pod)
		}
	}
	if len(pods) == 0 {
		return
	}

	// newPodIndex requires it, and the slices are the same whatever the order of the files.
	slices.SortFunc(pods, func(x, y *folderPod) int { return x.Key.Compare(y.Key) })
	index := newPodIndex(pods)
	for _, l := range a.order {
		if l.needs == nil || len(l.needs.selector) == 0 || has[l.key] || !a.f.scope.has(l.item) {
			continue
		}
		warn := func(msg string, attrs ...any) { a.warn(l, msg, attrs...) }
		for _, s := range derive(l.needs, index.find(l.key.Namespace, l.needs.selector)) {
			a.put(cluster.Slices, l, api.Slimmer{Options: a.f.opts, Warn: warn}.Slice(s))
		}
	}
}
