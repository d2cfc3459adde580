package simulation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// A resource is one of the resources that the server watches.
type resource int

const (
	namespaces resource = iota
	services
	endpointSlices
	pods
	resources // their number
)

func (r resource) String() string {
	return [...]string{"namespaces", "services", "endpointslices", "pods"}[r]
}

// A key names an object within its resource.
type key struct{ namespace, name string }

// An object is one version of an object. It is immutable.
type object struct {
	key
	version int // the cluster's version since which it is valid
	gone    bool
	front   bool // has the label tier=front

	// Of a Service: exactly one of these, unless it is headless.
	clusterIP, externalName string
	// Of a Service or an EndpointSlice.
	ports []port
	// Of an EndpointSlice.
	service   string
	endpoints []endpoint
	// Of a Pod.
	address string
}

// A selector reports whether a list or watch includes an object. A nil one selects all.
type selector func(*object) bool

// selected returns the history of an object without the versions that are not selected.
func (s selector) selected(history []*object) []*object {
	if s == nil {
		return history
	}
	versions := slices.Clone(history)
	for i, o := range versions {
		if !o.gone && !s(o) {
			versions[i] = &object{key: o.key, version: o.version, gone: true}
		}
	}
	return versions
}

type port struct {
	name string
	port int
}

type endpoint struct {
	address, hostname string
	ready             bool
}

// A cluster is the history of the objects of a cluster.
type cluster struct {
	mu      sync.Mutex
	version int
	times   []time.Time                  // of the versions from firstVersion on
	history [resources]map[key][]*object // by version
	changed chan struct{}                // closed at each change
}

// firstVersion is the version of the empty cluster.
const firstVersion = 10

func newCluster() *cluster {
	c := &cluster{version: firstVersion, times: []time.Time{{}}, changed: make(chan struct{})}
	for r := range c.history {
		c.history[r] = map[key][]*object{}
	}
	return c
}

// put adds a version of an object.
func (c *cluster) put(r resource, o object) *object {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	c.times = append(c.times, time.Now())
	o.version = c.version
	c.history[r][o.key] = append(c.history[r][o.key], &o)
	close(c.changed)
	c.changed = make(chan struct{})
	return &o
}

// now returns the present version, and a channel that is closed when there is another.
func (c *cluster) now() (version int, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version, c.changed
}

// versionAt returns the version at a time.
func (c *cluster) versionAt(t time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	later := slices.IndexFunc(c.times, t.Before)
	if later < 0 {
		return c.version
	}
	return firstVersion + later - 1
}

// at returns the object of a version. It is nil if there was none.
func at(history []*object, version int) *object {
	for _, o := range slices.Backward(history) {
		if o.version <= version {
			if o.gone {
				return nil
			}
			return o
		}
	}
	return nil
}

// list returns the selected objects of a version, sorted.
func (c *cluster) list(r resource, version int, selects selector) (objects []*object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range sorted(c.history[r]) {
		if o := at(selects.selected(c.history[r][k]), version); o != nil {
			objects = append(objects, o)
		}
	}
	return objects
}

// missing returns the number of selected objects that existed in a version or later and are
// not in a list.
func (c *cluster) missing(r resource, list []*object, since int, selects selector) (missing int) {
	in := map[key]bool{}
	for _, o := range list {
		in[o.key] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, history := range c.history[r] {
		existed := slices.ContainsFunc(between(selects.selected(history), since, c.version), func(o *object) bool { return o != nil })
		if existed && !in[k] {
			missing++
		}
	}
	return missing
}

// stable returns the selected objects that have existed since a version.
func (c *cluster) stable(r resource, since int, selects selector) map[key]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	objects := map[key]bool{}
	for k, history := range c.history[r] {
		if !slices.Contains(between(selects.selected(history), since, c.version), nil) {
			objects[k] = true
		}
	}
	return objects
}

// A change is an event of a watch.
type change struct {
	kind    string // ADDED, MODIFIED, DELETED
	object  *object
	version int
}

// changes returns the events between two versions, in order. An object that is no longer
// selected is deleted.
func (c *cluster) changes(r resource, after, until int, selects selector) (events []change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, history := range c.history[r] {
		history = selects.selected(history)
		for i, o := range history {
			existed := i > 0 && !history[i-1].gone
			if o.version <= after || o.version > until || o.gone && !existed {
				continue
			}
			e := change{"MODIFIED", o, o.version}
			switch {
			case o.gone:
				e.kind, e.object = "DELETED", history[i-1]
			case !existed:
				e.kind = "ADDED"
			}
			events = append(events, e)
		}
	}
	slices.SortFunc(events, func(a, b change) int { return a.version - b.version })
	return events
}

// between returns the versions of an object that were valid at some time between two
// versions of the cluster. nil stands for its absence.
func between(history []*object, first, last int) []*object {
	versions := []*object{at(history, first)}
	for _, o := range history {
		if o.version <= first || o.version > last {
			continue
		}
		if o.gone {
			o = nil
		}
		versions = append(versions, o)
	}
	return versions
}

func sorted(m map[key][]*object) []key {
	return slices.SortedFunc(maps.Keys(m), func(a, b key) int {
		return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	})
}

// The objects that exist have these names. Each Service has addresses of its own, so that
// the owner of an address is never in dispute.
var (
	namespaceNames = []string{"shop", "bank", "kube-system"}
	serviceNames   = []string{"web", "api", "db", "mail"}
	podNames       = []string{"web-0", "web-1"}
)

func clusterIP(namespace, service string, n int) string {
	return fmt.Sprintf("10.96.%d.%d", slices.Index(namespaceNames, namespace), 16*slices.Index(serviceNames, service)+1+n)
}

func endpointIP(namespace, service string, n int) string {
	return fmt.Sprintf("10.244.%d.%d", 16*slices.Index(namespaceNames, namespace)+slices.Index(serviceNames, service), 1+n)
}

// podIP returns one of the addresses of a namespace's pods.
func podIP(namespace string, n int) string {
	return fmt.Sprintf("10.245.%d.%d", slices.Index(namespaceNames, namespace), 1+n)
}

// change applies a random change, and returns it for the trace.
func (c *cluster) change(r *rand.Rand) string {
	namespace, service := namespaceNames[r.IntN(3)], serviceNames[r.IntN(4)]
	switch n := r.IntN(100); {
	case n < 4:
		k := key{"", namespace}
		if c.present(namespaces, k) {
			return c.remove(namespaces, k)
		}
		return describe(namespaces, c.put(namespaces, object{key: k}))
	case n < 12:
		k := key{namespace, podNames[r.IntN(2)]}
		if c.present(pods, k) && r.IntN(2) == 0 {
			return c.remove(pods, k)
		}
		return describe(pods, c.put(pods, object{key: k, front: r.IntN(4) > 0, address: podIP(namespace, r.IntN(3))}))
	case n < 40:
		k := key{namespace, service}
		if c.present(services, k) && r.IntN(3) == 0 {
			return c.remove(services, k)
		}
		return describe(services, c.put(services, randomService(r, k)))
	default:
		k := key{namespace, service + "-" + string("ab"[r.IntN(2)])}
		if c.present(endpointSlices, k) && r.IntN(4) == 0 {
			return c.remove(endpointSlices, k)
		}
		return describe(endpointSlices, c.put(endpointSlices, randomSlice(r, k, service)))
	}
}

func (c *cluster) present(r resource, k key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at(c.history[r][k], c.version) != nil
}

func (c *cluster) remove(r resource, k key) string {
	o := c.put(r, object{key: k, gone: true})
	return fmt.Sprintf("%d: delete %s %s/%s", o.version, r, k.namespace, k.name)
}

func describe(r resource, o *object) string {
	text := fmt.Sprintf("%d: put %s %s/%s", o.version, r, o.namespace, o.name)
	switch {
	case r == endpointSlices:
		return fmt.Sprintf("%s front %v, %v %v", text, o.front, o.endpoints, o.ports)
	case r == services:
		return fmt.Sprintf("%s front %v, %q %q %v", text, o.front, o.clusterIP, o.externalName, o.ports)
	case r == pods:
		return fmt.Sprintf("%s front %v, %s", text, o.front, o.address)
	}
	return text
}

func randomService(r *rand.Rand, k key) object {
	o := object{key: k, front: r.IntN(4) > 0, ports: randomPorts(r)}
	switch r.IntN(8) {
	case 0:
		o.externalName, o.ports = externalName(r.IntN(externalNames)), nil
	case 1, 2, 3:
	default:
		o.clusterIP = clusterIP(k.namespace, k.name, r.IntN(2))
	}
	return o
}

func randomPorts(r *rand.Rand) []port {
	return [][]port{{{"http", 80}}, {{"http", 8080}, {"metrics", 9090}}, {{"", 5432}}}[r.IntN(3)]
}

func randomSlice(r *rand.Rand, k key, service string) object {
	o := object{key: k, front: r.IntN(4) > 0, service: service, ports: randomPorts(r)}
	for i := range 4 {
		if r.IntN(2) == 0 {
			continue
		}
		e := endpoint{address: endpointIP(k.namespace, service, i), ready: r.IntN(4) > 0}
		if i%2 == 0 {
			e.hostname = fmt.Sprintf("host-%d", i)
		}
		o.endpoints = append(o.endpoints, e)
	}
	return o
}
