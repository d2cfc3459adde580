package kubernetes

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
)

// A randomCluster is a cluster of random objects that change: the index under
// test, and the plain objects for the model.
type randomCluster struct {
	*rand.Rand
	directive
	have  *objects
	index *Index
}

func pick[T any](c *randomCluster, from ...T) T { return from[c.IntN(len(from))] }

func (c *randomCluster) chance(percent int) bool { return c.IntN(100) < percent }

// pickSome returns up to n of the values, without duplicates.
func pickSome[T any](c *randomCluster, n int, from ...T) (some []T) {
	for _, i := range c.Perm(len(from))[:min(len(from), c.IntN(n+1))] {
		some = append(some, from[i])
	}
	return some
}

func newRandomCluster(seed uint64) *randomCluster {
	c := &randomCluster{Rand: rand.New(rand.NewPCG(seed, 53)), have: noObjects()}
	d := defaultOptions()
	d.tables = seed%3 > 0
	d.ttl = pick(c, uint32(0), 5, 30, 3600)
	d.pods = pick(c, podsDisabled, podsInsecure, podsVerified, podsVerified)
	d.zonal = c.chance(40)
	d.ignoreEmpty = c.chance(30)
	d.kubedns, d.wildcards = c.chance(40), c.chance(40)
	d.noEndpoints = !d.zonal && c.chance(10)
	if c.chance(30) {
		d.zones = []string{"Kube.Example.", "10.in-addr.arpa.", "168.192.in-addr.arpa.", "0.0.d.f.ip6.arpa."}
		d.zones[0] = strings.ToLower(d.zones[0])
	}
	if c.chance(60) {
		d.zones = append(d.zones, "clusterset.local.")
		d.multicluster = []string{"clusterset.local."}
	}
	if d.through = c.chance(50); d.through && c.chance(50) {
		d.throughZones = pickSome(c, 2, append(d.zones, "svc."+d.zones[0], "96.10.in-addr.arpa.", "shop.svc.clusterset.local.")...)
	}
	d.local = pickSome(c, 3, c.addresses()...)
	c.directive = d
	c.index = d.newIndex()
	return c
}

func (c *randomCluster) addresses() []netip.Addr {
	var ips []netip.Addr
	for _, s := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.10", "10.0.1.1", "10.96.0.1", "10.96.0.2", "192.168.7.1", "255.0.0.1",
		"fd00::1", "fd00::2", "fd00:1::", "fd00::1:0:0", "::2", "64:ff9b::a00:1"} {
		ips = append(ips, netip.MustParseAddr(s))
	}
	return ips
}

func (c *randomCluster) namespace() string { return pick(c, "shop", "shop", "kube-system", "svc") }
func (c *randomCluster) service() string   { return pick(c, "api", "api", "db", "web", "svc", "pin") }

func (c *randomCluster) ports() []cluster.Port {
	return slices.Clone(pick(c,
		nil,
		ports("80/tcp"),
		ports("http 80/tcp"),
		ports("http 80/tcp, https 443/tcp"),
		ports("https 443/tcp, http 80/tcp"),
		ports("http 80/tcp, http 80/udp, metrics 80/tcp"),
		ports("dns 53/udp, dns-tcp 53/tcp, 53/sctp"),
	))
}

func (c *randomCluster) target() string {
	inside := c.service() + "." + c.namespace() + ".svc." + c.zones[0]
	return pick(c, "www.example.com", "gone.example.com", "www.example.net", "WWW.Example.Com",
		inside, inside, inside, inside, "db-0."+inside, "_http._tcp."+inside, "missing.shop.svc."+c.zones[0],
		c.zones[0], "dns-version."+c.zones[0], "10-0-0-1.shop.pod."+c.zones[0], "1.0.0.10.in-addr.arpa", "api.shop.svc.clusterset.local",
		"10.0.0.1", "fd00::1", "not..a.name")
}

func (c *randomCluster) newService(kind cluster.Kind, key cluster.Key) *cluster.Service {
	s := &cluster.Service{Namespace: key.Namespace, Name: key.Name}
	switch {
	case kind == cluster.Services && c.chance(25):
		s.ExternalName = c.target()
		return s
	case c.chance(45):
		s.Headless = true
	default:
		s.ClusterIPs = pickSome(c, 2, c.addresses()[4:]...)
		if c.chance(10) && len(s.ClusterIPs) > 0 { // the API server allows none, a file of manifests may have some
			s.ClusterIPs = append(s.ClusterIPs, s.ClusterIPs[0])
		}
	}
	s.Ports = c.ports()
	s.PublishNotReady = c.chance(20)
	return s
}

func (c *randomCluster) newSlice(kind cluster.Kind, key cluster.Key) *cluster.Slice {
	sl := &cluster.Slice{Namespace: key.Namespace, Name: key.Name, Service: c.service(), Ports: c.ports()}
	if kind == cluster.ImportSlices {
		sl.Cluster = pick(c, "east", "west", "eu.west", "db-0.west")
	}
	zones := map[netip.Addr]string{} // an address is in one topology zone
	for i, ip := range c.addresses() {
		zones[ip] = []string{"zone-a", "zone-b", "eu.zone-a", ""}[i%4]
	}
	var buf []byte
	if kind == cluster.Slices && c.chance(20) {
		for range c.IntN(3) {
			e := cluster.Endpoint{Ready: c.chance(75), Hostname: pick(c, "", "", "db-0", "db-1")}
			if c.zonal {
				e.Zone = pick(c, "", "zone-a", "eu.zone-a")
			}
			buf = cluster.AppendName(buf, pick(c, "www.example.com", "www.example.com", "gone.example.com", "api.shop.svc."+strings.TrimSuffix(c.zones[0], ".")), e)
		}
		sl.Endpoints = cluster.Endpoints(buf)
		return sl
	}
	for _, ip := range pickSome(c, 5, c.addresses()...) {
		e := cluster.Endpoint{Addr: ip, Ready: c.chance(75), Target: c.chance(30)}
		if c.chance(60) {
			e.Hostname = pick(c, "db-0", "db-0", "db-1", "eu", "west", "10-0-0-1", "10-0-0-2", "fd00--1")
		}
		if c.zonal {
			e.Zone = zones[ip]
		}
		buf = cluster.AppendEndpoint(buf, e)
		if c.chance(10) {
			e.Ready = !e.Ready
			buf = cluster.AppendEndpoint(buf, e)
		}
	}
	sl.Endpoints = cluster.Endpoints(buf)
	return sl
}

func (c *randomCluster) key(kind cluster.Kind) cluster.Key {
	switch kind {
	case cluster.Namespaces:
		return cluster.Key{Name: c.namespace()}
	case cluster.Services, cluster.Imports:
		return cluster.Key{Namespace: c.namespace(), Name: c.service()}
	case cluster.Pods:
		return cluster.Key{Namespace: c.namespace(), Name: pick(c, "db-0", "db-1", "api-x7")}
	}
	return cluster.Key{Namespace: c.namespace(), Name: pick(c, "a", "b", "api-a", "api-b", "db-a", "web-a")}
}

// newObject returns an object with random content.
func (c *randomCluster) newObject(kind cluster.Kind, key cluster.Key) cluster.Object {
	switch kind {
	case cluster.Namespaces:
		return &cluster.Namespace{Name: key.Name}
	case cluster.Services, cluster.Imports:
		return c.newService(kind, key)
	case cluster.Pods:
		return &cluster.Pod{Namespace: key.Namespace, Name: key.Name, IPs: pickSome(c, 3, c.addresses()...)}
	}
	return c.newSlice(kind, key)
}

// replace lists a kind again: most objects are unchanged, in another order.
func (c *randomCluster) replace(kind cluster.Kind, keep int) {
	next := map[cluster.Key]cluster.Object{}
	for _, o := range c.have.list(kind) {
		if c.chance(keep) {
			next[o.Key()] = copyObject(o)
		}
	}
	for range c.IntN(6) {
		key := c.key(kind)
		next[key] = c.newObject(kind, key)
	}
	c.set(kind, next)
}

func (c *randomCluster) set(kind cluster.Kind, next map[cluster.Key]cluster.Object) {
	c.have[kind] = next
	list := c.have.list(kind)
	c.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	relist(c.index, kind, list)
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

// change applies one random change that a watch may deliver.
func (c *randomCluster) change() {
	kind := pick(c, c.kinds()...)
	key := c.key(kind)
	switch {
	case c.chance(10):
		c.replace(kind, 70)
	case c.chance(35) || kind == cluster.Namespaces && c.chance(30):
		delete(c.have[kind], key)
		c.index.Delete(kind, key)
	default:
		o := c.newObject(kind, key)
		if old := c.have[kind][key]; old != nil && c.chance(20) {
			o = copyObject(old)
		}
		c.have[kind][key] = o
		c.index.Put(kind, o)
	}
}

func (c *randomCluster) model() *model {
	return newModel(c.directive, c.have, c.index.serial.Load(), c.index.importSerial.Load())
}

// String returns the objects in a form similar to YAML, for the message of a
// failure.
func (c *randomCluster) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "directive: %+v\n", c.directive)
	for kind := range cluster.Kinds {
		for _, o := range c.have.list(kind) {
			switch o := o.(type) {
			case *cluster.Namespace:
				fmt.Fprintf(&b, "- namespace: %s\n", o.Name)
			case *cluster.Service:
				fmt.Fprintf(&b, "- %s: %s/%s\n    %s\n", kind, o.Namespace, o.Name,
					fields("externalName", o.ExternalName, "headless", o.Headless, "clusterIPs", o.ClusterIPs, "ports", o.Ports, "publishNotReady", o.PublishNotReady))
			case *cluster.Pod:
				fmt.Fprintf(&b, "- pod: %s/%s %v\n", o.Namespace, o.Name, o.IPs)
			case *cluster.Slice:
				fmt.Fprintf(&b, "- slice: %s/%s\n    %s\n", o.Namespace, o.Name, fields("service", o.Service, "cluster", o.Cluster, "ports", o.Ports))
				for name, e := range o.Endpoints.Names() {
					fmt.Fprintf(&b, "    - %s\n", fields("address", name, "hostname", e.Hostname, "zone", e.Zone, "ready", fmt.Sprint(e.Ready)))
				}
				for e := range o.Endpoints.All() {
					fmt.Fprintf(&b, "    - %s\n", fields("address", e.Addr, "hostname", e.Hostname, "zone", e.Zone, "ready", fmt.Sprint(e.Ready)))
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

// queryTypes returns the types that are queried for each name.
func queryTypes() []string {
	return []string{"A", "AAAA", "SRV", "PTR", "TXT", "CNAME", "NS", "SOA", "MX", "HTTPS", "DS", "ANY", "AXFR", "IXFR"}
}

// mutate changes an existing name. Most results do not exist.
func (c *randomCluster) mutate(name string) string {
	labels := mdns.SplitDomainName(name)
	if len(labels) == 0 {
		return name
	}
	i := c.IntN(len(labels))
	if c.wildcards && c.chance(30) {
		labels[i] = "*"
		return mdns.Fqdn(strings.Join(labels, "."))
	}
	switch c.IntN(12) {
	case 0:
		return "x." + name
	case 1:
		return "_tcp." + name
	case 2: // the parent
		labels = labels[1:]
	case 3:
		labels[0] = pick(c, addressHash(pick(c, c.addresses()...)), "db-0", "api", "*", "any", "_http", "_udp", "_", "_zone", "west", "10-0-0-2", "fd00--1", "fd00-0-0-0-0-0-0-1", "010-0-0-1", "--ffff-a00-1", "1-2-3", "--", "-", "0", "01", "a", "ab", "256")
	case 4:
		labels[i] = strings.TrimPrefix(labels[i], "_")
	case 5:
		labels = slices.Delete(labels, i, i+1)
	case 6:
		labels = slices.Insert(labels, i, labels[i])
	case 7:
		labels[i] = "0" + labels[i]
	case 8:
		return pick(c, "x", "1-2-3-4", "10-0-0-1", "fd00--1", "fd00-0-0--1", "--ffff-a00-1", "0-0-0-0", "--", "---", "1--2--3", "1-2-3-4-5-6-7--8", "fd00--zzzz") + "." + c.namespace() + ".pod." + pick(c, c.zones...)
	case 9:
		return pick(c, "zone-a", "zone-b", "eu.zone-a", "nowhere", "zone-a.eu") + "." + pick(c, "pin", "prefer", "other") + "._zone." + name
	case 10:
		labels[i] = strings.ToUpper(labels[i])
	case 11: // IPv4-mapped addresses are not in ip6.arpa
		mapped, _ := mdns.ReverseAddr(pick(c, c.addresses()...).String())
		if ip := pick(c, c.addresses()...); ip.Is4() {
			six := netip.AddrFrom16(ip.As16()).As16()
			mapped = "ip6.arpa."
			for _, octet := range six {
				mapped = fmt.Sprintf("%x.%x.", octet&15, octet>>4) + mapped
			}
		}
		parts := mdns.SplitDomainName(mapped)
		labels = parts[c.IntN(len(parts)):]
	}
	return mdns.Fqdn(strings.Join(labels, "."))
}

// compare sends one query and returns an error if the reply is not one of the
// model's.
func (c *randomCluster) compare(t *testing.T, s *server, m *model, name, qtype string) error {
	t.Helper()
	if _, ok := mdns.IsDomainName(name); !ok {
		return nil
	}
	got := toReply(s.ask(t, name, qtype)).String()
	var want []string
	for _, r := range m.replies(strings.ToLower(name), qtype) {
		if r.String() == got {
			return nil
		}
		want = append(want, r.String())
	}
	return fmt.Errorf("%s %s\ngot:\n%swant:\n%s", name, qtype, got, strings.Join(want, "or:\n"))
}

// TestRandomClusters compares answers with the model's while clusters change.
func TestRandomClusters(t *testing.T) {
	const worlds = 30
	failed := 0
	for seed := range uint64(worlds) {
		c := newRandomCluster(seed)
		if err := c.checkChanges(t); err != nil {
			t.Errorf("seed %d:\n%s\n%v", seed, c, err)
			if failed++; failed == 3 {
				t.Fatal("stopping after three failures")
			}
		}
	}
}

// checkChanges compares answers with the model's while a cluster is listed and changes.
func (c *randomCluster) checkChanges(t *testing.T) error {
	const changes, queries = 30, 60
	s := serve(t, c.directive, c.handler(t, c.index))
	if err := c.checkFirstLists(t, s); err != nil {
		return err
	}
	m := c.model()
	for range changes {
		before := m
		c.change()
		m = c.model()
		if err := errors.Join(checkSerials(before, m), c.index.check()); err != nil {
			return err
		}
		known := slices.Sorted(maps.Keys(m.names))
		for range queries {
			name := pick(c, known...)
			for c.chance(50) {
				name = c.mutate(name)
			}
			if err := c.compare(t, s, m, name, pick(c, queryTypes()...)); err != nil {
				return err
			}
		}
	}
	for name := range m.names {
		for _, qtype := range queryTypes() {
			if err := c.compare(t, s, m, name, qtype); err != nil {
				return err
			}
		}
	}
	if err := c.checkNewIndex(t, s, m); err != nil {
		return err
	}
	return c.checkEmpty()
}

// checkFirstLists delivers the first lists, in any order. Before all have been delivered an
// answer is SERVFAIL or the final one.
func (c *randomCluster) checkFirstLists(t *testing.T, s *server) error {
	for _, kind := range c.kinds() {
		for range 6 {
			key := c.key(kind)
			c.have[kind][key] = c.newObject(kind, key)
		}
	}
	for _, i := range c.Perm(len(c.kinds())) {
		m := c.model()
		known := slices.Sorted(maps.Keys(m.names))
		for range 40 {
			name, qtype := pick(c, known...), pick(c, queryTypes()...)
			if c.chance(30) {
				name = c.mutate(name)
			}
			if strings.Contains(name, "dns.") || slices.Contains(c.zones, name) {
				continue // the apex does not depend on the objects
			}
			err := c.compare(t, s, m, name, qtype)
			if err != nil && toReply(s.ask(t, name, qtype)).code != "SERVFAIL" {
				return fmt.Errorf("before the list of %s: %w", c.kinds()[i], err)
			}
		}
		c.set(c.kinds()[i], c.have[c.kinds()[i]])
	}
	return nil
}

// checkSerials returns an error if the records of a zone have changed and its serial has not.
func checkSerials(before, now *model) error {
	if before.serial == now.serial && before.contents(false) != now.contents(false) {
		return fmt.Errorf("serial %d did not change, but the records did, which were:\n%s", now.serial, before.contents(false))
	}
	if before.importSerial == now.importSerial && before.contents(true) != now.contents(true) {
		return fmt.Errorf("serial %d of imports did not change, but the records did, which were:\n%s", now.importSerial, before.contents(true))
	}
	return nil
}

// contents returns the records below svc and pod: those of the ServiceImports, or
// all others.
func (m *model) contents(imports bool) string {
	var lines []string
	for name, at := range m.names {
		for rtype, all := range at {
			if !strings.Contains(name, "*") && imports == slices.Contains(m.multicluster, m.zone(name)) && strings.Contains(name, ".svc.") {
				lines = append(lines, fmt.Sprintln(name, rtype, slices.Sorted(slices.Values(all))))
			}
		}
	}
	for _, o := range m.have.list(cluster.Pods) {
		if p := o.(*cluster.Pod); !imports && m.exposed(p.Namespace) {
			for _, ip := range p.IPs {
				lines = append(lines, fmt.Sprintln(dashed(ip)+"."+p.Namespace))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}
