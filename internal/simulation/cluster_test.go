package simulation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
)

// A resource is one of the resources that the server watches.
type resource int

const (
	namespaces resource = iota
	services
	endpointSlices
	resources // their number
)

func (r resource) String() string { return [...]string{"namespaces", "services", "endpointslices"}[r] }

// A key names an object within its resource.
type key struct{ namespace, name string }

// An object is one version of an object. It is immutable.
type object struct {
	key
	version int // the cluster's version since which it is valid
	gone    bool

	// Of a Service: exactly one of these, unless it is headless.
	clusterIP, externalName string
	// Of a Service or an EndpointSlice.
	ports []port
	// Of an EndpointSlice.
	service   string
	endpoints []endpoint
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
	history [resources]map[key][]*object // by version
	changed chan struct{}                // closed at each change
}

func newCluster() *cluster {
	c := &cluster{version: 10, changed: make(chan struct{})}
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

// list returns the objects of a version, sorted.
func (c *cluster) list(r resource, version int) (objects []*object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range sorted(c.history[r]) {
		if o := at(c.history[r][k], version); o != nil {
			objects = append(objects, o)
		}
	}
	return objects
}

// missing returns the number of objects that existed in a version or later and are not in
// a list.
func (c *cluster) missing(r resource, list []*object, since int) (missing int) {
	in := map[key]bool{}
	for _, o := range list {
		in[o.key] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, history := range c.history[r] {
		existed := slices.ContainsFunc(between(history, since, c.version), func(o *object) bool { return o != nil })
		if existed && !in[k] {
			missing++
		}
	}
	return missing
}

// stable returns the number of objects that have existed since a version.
func (c *cluster) stable(r resource, since int) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, history := range c.history[r] {
		if !slices.Contains(between(history, since, c.version), nil) {
			n++
		}
	}
	return n
}

// A change is an event of a watch.
type change struct {
	kind    string // ADDED, MODIFIED, DELETED
	object  *object
	version int
}

// changes returns the events between two versions, in order.
func (c *cluster) changes(r resource, after, until int) (events []change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, history := range c.history[r] {
		for i, o := range history {
			if o.version <= after || o.version > until {
				continue
			}
			e := change{"MODIFIED", o, o.version}
			switch {
			case o.gone:
				e.kind, e.object = "DELETED", history[i-1]
			case i == 0 || history[i-1].gone:
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
)

func clusterIP(namespace, service string, n int) string {
	return fmt.Sprintf("10.96.%d.%d", slices.Index(namespaceNames, namespace), 16*slices.Index(serviceNames, service)+1+n)
}

func endpointIP(namespace, service string, n int) string {
	return fmt.Sprintf("10.244.%d.%d", 16*slices.Index(namespaceNames, namespace)+slices.Index(serviceNames, service), 1+n)
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
	case n < 35:
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
		return fmt.Sprintf("%s %v %v", text, o.endpoints, o.ports)
	case r == services:
		return fmt.Sprintf("%s %q %q %v", text, o.clusterIP, o.externalName, o.ports)
	}
	return text
}

func randomService(r *rand.Rand, k key) object {
	o := object{key: k, ports: randomPorts(r)}
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
	o := object{key: k, service: service, ports: randomPorts(r)}
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

// json returns the object as the API server sends it.
func (o *object) json(r resource, version int) string {
	meta := fmt.Sprintf(`"metadata":{"namespace":%q,"name":%q,"resourceVersion":"%d"`, o.namespace, o.name, version)
	var ports []string
	for _, p := range o.ports {
		ports = append(ports, fmt.Sprintf(`{"name":%q,"protocol":"TCP","port":%d}`, p.name, p.port))
	}
	list := strings.Join(ports, ",")
	switch r {
	case namespaces:
		return fmt.Sprintf(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":%q,"resourceVersion":"%d"}}`, o.name, version)
	case services:
		spec := fmt.Sprintf(`"type":"ClusterIP","clusterIP":%q,"clusterIPs":[%[1]q],"ports":[%s]`, o.clusterIP, list)
		if o.clusterIP == "" {
			spec = fmt.Sprintf(`"type":"ClusterIP","clusterIP":"None","clusterIPs":["None"],"ports":[%s]`, list)
		}
		if o.externalName != "" {
			spec = fmt.Sprintf(`"type":"ExternalName","externalName":%q`, o.externalName)
		}
		return fmt.Sprintf(`{"kind":"Service","apiVersion":"v1",%s},"spec":{%s}}`, meta, spec)
	}
	var endpoints []string
	for _, e := range o.endpoints {
		host := ""
		if e.hostname != "" {
			host = fmt.Sprintf(`,"hostname":%q`, e.hostname)
		}
		endpoints = append(endpoints, fmt.Sprintf(`{"addresses":[%q],"conditions":{"ready":%t}%s}`, e.address, e.ready, host))
	}
	return fmt.Sprintf(`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1",%s,"labels":{"kubernetes.io/service-name":%q}},"addressType":"IPv4","endpoints":[%s],"ports":[%s]}`,
		meta, o.service, strings.Join(endpoints, ","), list)
}
