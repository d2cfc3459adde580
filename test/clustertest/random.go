package clustertest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
)

// Objects is the present state of a cluster.
type Objects [cluster.Kinds]map[cluster.Key]cluster.Object

func newObjects() *Objects {
	have := new(Objects)
	for kind := range have {
		have[kind] = map[cluster.Key]cluster.Object{}
	}
	return have
}

// List returns the objects of a kind, sorted.
func (o *Objects) List(kind cluster.Kind) []cluster.Object {
	return slices.SortedFunc(maps.Values(o[kind]), func(a, b cluster.Object) int {
		return cmp.Or(cmp.Compare(a.Key().Namespace, b.Key().Namespace), cmp.Compare(a.Key().Name, b.Key().Name))
	})
}

// A Random is a cluster of random objects that change.
type Random struct {
	*rand.Rand
	Sink  cluster.Sink // receives the changes
	Have  *Objects
	Kinds []cluster.Kind // of the objects
	Zone  string         // of the cluster, with a final dot; aliases are in it
	Zonal bool           // endpoints are in topology zones
}

// NewRandom returns a cluster without objects. The caller sets the other fields.
func NewRandom(seed uint64) *Random {
	return &Random{Rand: rand.New(rand.NewPCG(seed, 53)), Have: newObjects()}
}

// Chance returns true in percent of the calls.
func (c *Random) Chance(percent int) bool { return c.IntN(100) < percent }

// Pick returns one of the values.
func Pick[T any](c *Random, from ...T) T { return from[c.IntN(len(from))] }

// PickSome returns up to n of the values, without duplicates.
func PickSome[T any](c *Random, n int, from ...T) (some []T) {
	for _, i := range c.Perm(len(from))[:min(len(from), c.IntN(n+1))] {
		some = append(some, from[i])
	}
	return some
}

// Addresses returns the addresses that objects may have.
func (c *Random) Addresses() []netip.Addr {
	var ips []netip.Addr
	for _, s := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.10", "10.0.1.1", "10.96.0.1", "10.96.0.2",
		"192.168.7.1", "255.0.0.1",
		"fd00::1", "fd00::2", "fd00:1::", "fd00::1:0:0", "::2", "64:ff9b::a00:1"} {
		ips = append(ips, netip.MustParseAddr(s))
	}
	return ips
}

// Namespace returns the name of a namespace.
func (c *Random) Namespace() string { return Pick(c, "shop", "shop", "kube-system", "svc") }

func (c *Random) service() string { return Pick(c, "api", "api", "db", "web", "svc", "pin") }

func (c *Random) ports() []cluster.Port {
	return slices.Clone(Pick(c,
		nil,
		Ports("80/tcp"),
		Ports("http 80/tcp"),
		Ports("http 80/tcp, https 443/tcp"),
		Ports("https 443/tcp, http 80/tcp"),
		Ports("http 80/tcp, http 80/udp, metrics 80/tcp"),
		Ports("dns 53/udp, dns-tcp 53/tcp, 53/sctp"),
	))
}

func (c *Random) target() string {
	inside := c.service() + "." + c.Namespace() + ".svc." + c.Zone
	return Pick(c, "www.example.com", "gone.example.com", "www.example.net", "WWW.Example.Com",
		inside, inside, inside, inside, "db-0."+inside, "_http._tcp."+inside, "missing.shop.svc."+c.Zone,
		c.Zone, "dns-version."+c.Zone, "10-0-0-1.shop.pod."+c.Zone, "1.0.0.10.in-addr.arpa",
		"api.shop.svc.clusterset.local",
		"10.0.0.1", "fd00::1", "not..a.name")
}

func (c *Random) newService(kind cluster.Kind, key cluster.Key) *cluster.Service {
	s := &cluster.Service{Namespace: key.Namespace, Name: key.Name}
	switch {
	case kind == cluster.Services && c.Chance(25):
		s.ExternalName = c.target()
		return s
	case c.Chance(45):
		s.Headless = true
	default:
		s.ClusterIPs = PickSome(c, 2, c.Addresses()[4:]...)
		if c.Chance(10) && len(s.ClusterIPs) > 0 { // the API server allows none, a file of manifests may have some
			s.ClusterIPs = append(s.ClusterIPs, s.ClusterIPs[0])
		}
	}
	s.Ports = c.ports()
	s.PublishNotReady = c.Chance(20)
	return s
}

func (c *Random) newSlice(kind cluster.Kind, key cluster.Key) *cluster.Slice {
	sl := &cluster.Slice{Namespace: key.Namespace, Name: key.Name, Service: c.service(), Ports: c.ports()}
	if kind == cluster.ImportSlices {
		sl.Cluster = Pick(c, "east", "west", "eu.west", "db-0.west")
	}

	zones := map[netip.Addr]string{} // an address is in one topology zone
	for i, ip := range c.Addresses() {
		zones[ip] = []string{"zone-a", "zone-b", "eu.zone-a", ""}[i%4]
	}

	var buf []byte
	if kind == cluster.Slices && c.Chance(20) {
		for range c.IntN(3) {
			e := cluster.Endpoint{Ready: c.Chance(75), Hostname: Pick(c, "", "", "db-0", "db-1")}
			if c.Zonal {
				e.Zone = Pick(c, "", "zone-a", "eu.zone-a")
			}
			buf = cluster.AppendName(buf,
				Pick(c, "www.example.com", "www.example.com", "gone.example.com",
					"api.shop.svc."+strings.TrimSuffix(c.Zone, ".")), e)
		}
		sl.Endpoints = cluster.Endpoints(buf)
		return sl
	}

	for _, ip := range PickSome(c, 5, c.Addresses()...) {
		e := cluster.Endpoint{Addr: ip, Ready: c.Chance(75), Target: c.Chance(30)}
		if c.Chance(60) {
			e.Hostname = Pick(c, "db-0", "db-0", "db-1", "eu", "west", "10-0-0-1", "10-0-0-2", "fd00--1")
		}
		if c.Zonal {
			e.Zone = zones[ip]
		}

		buf = cluster.AppendEndpoint(buf, e)
		if c.Chance(10) {
			e.Ready = !e.Ready
			buf = cluster.AppendEndpoint(buf, e)
		}
	}

	sl.Endpoints = cluster.Endpoints(buf)
	return sl
}

// key returns the key of an object of a kind, which may exist.
func (c *Random) key(kind cluster.Kind) cluster.Key {
	switch kind {
	case cluster.Namespaces:
		return cluster.Key{Name: c.Namespace()}
	case cluster.Services, cluster.Imports:
		return cluster.Key{Namespace: c.Namespace(), Name: c.service()}
	case cluster.Pods:
		return cluster.Key{Namespace: c.Namespace(), Name: Pick(c, "db-0", "db-1", "api-x7")}
	}
	return cluster.Key{Namespace: c.Namespace(), Name: Pick(c, "a", "b", "api-a", "api-b", "db-a", "web-a")}
}

// Fill adds up to n objects of a kind, which the sink does not receive.
func (c *Random) Fill(kind cluster.Kind, n int) {
	for range n {
		key := c.key(kind)
		c.Have[kind][key] = c.newObject(kind, key)
	}
}

// newObject returns an object with random content.
func (c *Random) newObject(kind cluster.Kind, key cluster.Key) cluster.Object {
	switch kind {
	case cluster.Namespaces:
		return &cluster.Namespace{Name: key.Name}
	case cluster.Services, cluster.Imports:
		return c.newService(kind, key)
	case cluster.Pods:
		return &cluster.Pod{Namespace: key.Namespace, Name: key.Name, IPs: PickSome(c, 3, c.Addresses()...)}
	}
	return c.newSlice(kind, key)
}

// replace lists a kind again: most objects are unchanged, in another order.
func (c *Random) replace(kind cluster.Kind, keep int) {
	next := map[cluster.Key]cluster.Object{}
	for _, o := range c.Have.List(kind) {
		if c.Chance(keep) {
			next[o.Key()] = copyObject(o)
		}
	}
	for range c.IntN(6) {
		key := c.key(kind)
		next[key] = c.newObject(kind, key)
	}
	c.Set(kind, next)
}

// Set lists the objects of a kind, in any order.
func (c *Random) Set(kind cluster.Kind, next map[cluster.Key]cluster.Object) {
	c.Have[kind] = next
	list := c.Have.List(kind)
	c.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	List(c.Sink, kind, list)
}

// copyObject returns an equal object, as a second list decodes it.
func copyObject(o cluster.Object) cluster.Object {
	switch o := o.(type) {
	case *cluster.Namespace:
		copied := *o
		return &copied
	case *cluster.Service:
		copied := *o
		copied.Ports, copied.ClusterIPs = slices.Clone(o.Ports), slices.Clone(o.ClusterIPs)
		return &copied
	case *cluster.Slice:
		copied := *o
		copied.Ports = slices.Clone(o.Ports)
		return &copied
	case *cluster.Pod:
		copied := *o
		copied.IPs = slices.Clone(o.IPs)
		return &copied
	}
	panic("no object of a cluster")
}

// Change applies one random change that a watch may deliver.
func (c *Random) Change() {
	kind := Pick(c, c.Kinds...)
	key := c.key(kind)
	switch {
	case c.Chance(10):
		c.replace(kind, 70)
	case c.Chance(35) || kind == cluster.Namespaces && c.Chance(30):
		delete(c.Have[kind], key)
		c.Sink.Delete(kind, key)
	default:
		o := c.newObject(kind, key)
		if old := c.Have[kind][key]; old != nil && c.Chance(20) {
			o = copyObject(old)
		}
		c.Have[kind][key] = o
		c.Sink.Put(kind, o)
	}
}

// String returns the objects in a form similar to YAML, for the message of a
// failure.
func (c *Random) String() string {
	var b strings.Builder
	for kind := range cluster.Kinds {
		for _, o := range c.Have.List(kind) {
			switch o := o.(type) {
			case *cluster.Namespace:
				fmt.Fprintf(&b, "- namespace: %s\n", o.Name)
			case *cluster.Service:
				fmt.Fprintf(&b, "- %s: %s/%s\n    %s\n", kind, o.Namespace, o.Name,
					fields("externalName", o.ExternalName, "headless", o.Headless, "clusterIPs", o.ClusterIPs,
						"ports", o.Ports, "publishNotReady", o.PublishNotReady))
			case *cluster.Pod:
				fmt.Fprintf(&b, "- pod: %s/%s %v\n", o.Namespace, o.Name, o.IPs)
			case *cluster.Slice:
				fmt.Fprintf(&b, "- slice: %s/%s\n    %s\n", o.Namespace, o.Name,
					fields("service", o.Service, "cluster", o.Cluster, "ports", o.Ports))
				for name, e := range o.Endpoints.Names() {
					fmt.Fprintf(&b, "    - %s\n",
						fields("address", name, "hostname", e.Hostname, "zone", e.Zone, "ready", fmt.Sprint(e.Ready)))
				}
				for e := range o.Endpoints.All() {
					fmt.Fprintf(&b, "    - %s\n",
						fields("address", e.Addr, "hostname", e.Hostname, "zone", e.Zone, "ready", fmt.Sprint(e.Ready)))
				}
			}
		}
	}
	return b.String()
}

// fields formats the pairs whose value is not empty.
func fields(pairs ...any) string {
	var out []string
	for i := 0; i < len(pairs); i += 2 {
		if s := fmt.Sprint(pairs[i+1]); s != "" && s != "[]" && s != "false" {
			out = append(out, fmt.Sprintf("%s: %s", pairs[i], s))
		}
	}
	return strings.Join(out, ", ")
}

// DeleteAll deletes all objects, in any order: those of some kinds by an empty list.
func (c *Random) DeleteAll() {
	for _, i := range c.Perm(len(c.Kinds)) {
		kind := c.Kinds[i]
		if c.Chance(50) {
			c.Set(kind, nil)
			continue
		}
		for _, o := range c.Have.List(kind) {
			c.Sink.Delete(kind, o.Key())
		}
		clear(c.Have[kind])
	}
}
