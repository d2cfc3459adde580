package kubernetes

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/clustertest"
	"github.com/seamark/seamark/test/race"
)

// A randomCluster is a cluster of random objects that change: the index under
// test, and the plain objects for the model.
type randomCluster struct {
	*clustertest.Random
	directive
	index *index.Index
}

func newRandomCluster(seed uint64) *randomCluster {
	c := &randomCluster{Random: clustertest.NewRandom(seed)}
	d := defaultOptions()
	d.tables = seed%3 > 0
	d.ttl = clustertest.Pick(c.Random, uint32(0), 5, 30, 3600)
	d.pods = clustertest.Pick(c.Random, podsDisabled, podsInsecure, podsVerified, podsVerified)
	d.zonal = c.Chance(40)
	d.ignoreEmpty = c.Chance(30)
	d.kubedns, d.wildcards = c.Chance(40), c.Chance(40)
	d.noEndpoints = !d.zonal && c.Chance(10)
	if c.Chance(30) {
		d.zones = []string{"Kube.Example.", "10.in-addr.arpa.", "168.192.in-addr.arpa.", "0.0.d.f.ip6.arpa."}
		d.zones[0] = strings.ToLower(d.zones[0])
	}
	if c.Chance(60) {
		d.zones = append(d.zones, "clusterset.local.")
		d.multicluster = []string{"clusterset.local."}
	}
	if d.through = c.Chance(50); d.through && c.Chance(50) {
		d.throughZones = clustertest.PickSome(c.Random, 2, append(d.zones, "svc."+d.zones[0], "96.10.in-addr.arpa.", "shop.svc.clusterset.local.")...)
	}
	d.local = clustertest.PickSome(c.Random, 3, c.Addresses()...)
	c.directive = d
	c.index = d.newIndex()
	c.Sink, c.Kinds, c.Zone, c.Zonal = c.index, d.kinds(), d.zones[0], d.zonal
	return c
}

func (c *randomCluster) model() *model {
	return newModel(c.directive, c.Have, c.index.Serial(false), c.index.Serial(true))
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
	if c.wildcards && c.Chance(30) {
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
		labels[0] = clustertest.Pick(c.Random, clustertest.HashLabel(clustertest.Pick(c.Random, c.Addresses()...)), "db-0", "api", "*", "any", "_http", "_udp", "_", "_zone", "west", "10-0-0-2", "fd00--1", "fd00-0-0-0-0-0-0-1", "010-0-0-1", "--ffff-a00-1", "1-2-3", "--", "-", "0", "01", "a", "ab", "256")
	case 4:
		labels[i] = strings.TrimPrefix(labels[i], "_")
	case 5:
		labels = slices.Delete(labels, i, i+1)
	case 6:
		labels = slices.Insert(labels, i, labels[i])
	case 7:
		labels[i] = "0" + labels[i]
	case 8:
		return clustertest.Pick(c.Random, "x", "1-2-3-4", "10-0-0-1", "fd00--1", "fd00-0-0--1", "--ffff-a00-1", "0-0-0-0", "--", "---", "1--2--3", "1-2-3-4-5-6-7--8", "fd00--zzzz") + "." + c.Namespace() + ".pod." + clustertest.Pick(c.Random, c.zones...)
	case 9:
		return clustertest.Pick(c.Random, "zone-a", "zone-b", "eu.zone-a", "nowhere", "zone-a.eu") + "." + clustertest.Pick(c.Random, "pin", "prefer", "other") + "._zone." + name
	case 10:
		labels[i] = strings.ToUpper(labels[i])
	case 11: // IPv4-mapped addresses are not in ip6.arpa
		mapped, _ := mdns.ReverseAddr(clustertest.Pick(c.Random, c.Addresses()...).String())
		if ip := clustertest.Pick(c.Random, c.Addresses()...); ip.Is4() {
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
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	worlds := race.Fewer(uint64(30))
	failed := 0
	for seed := range worlds {
		c := newRandomCluster(seed)
		if err := c.checkChanges(t); err != nil {
			t.Errorf("seed %d: %+v\n%s\n%v", seed, c.directive, c, err)
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
		c.Change()
		m = c.model()
		if err := checkSerials(before, m); err != nil {
			return err
		}
		known := slices.Sorted(maps.Keys(m.names))
		for range queries {
			name := clustertest.Pick(c.Random, known...)
			for c.Chance(50) {
				name = c.mutate(name)
			}
			if err := c.compare(t, s, m, name, clustertest.Pick(c.Random, queryTypes()...)); err != nil {
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
	return c.checkNewIndex(t, s, m)
}

// checkFirstLists delivers the first lists, in any order. Before all have been delivered an
// answer is SERVFAIL or the final one.
func (c *randomCluster) checkFirstLists(t *testing.T, s *server) error {
	for _, kind := range c.kinds() {
		c.Fill(kind, 6)
	}
	for _, i := range c.Perm(len(c.kinds())) {
		m := c.model()
		known := slices.Sorted(maps.Keys(m.names))
		for range 40 {
			name, qtype := clustertest.Pick(c.Random, known...), clustertest.Pick(c.Random, queryTypes()...)
			if c.Chance(30) {
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
		c.Set(c.kinds()[i], c.Have[c.kinds()[i]])
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
	for _, o := range m.have.List(cluster.Pods) {
		if p := o.(*cluster.Pod); !imports && m.exposed(p.Namespace) {
			for _, ip := range p.IPs {
				lines = append(lines, fmt.Sprintln(dashed(ip)+"."+p.Namespace))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}

// checkNewIndex compares the index with one that is built from the present objects: replicas
// that started at different times must have the same answers.
func (c *randomCluster) checkNewIndex(t *testing.T, s *server, m *model) error {
	fresh := c.newIndex()
	for _, i := range c.Perm(len(c.Kinds)) {
		relist(fresh, c.Kinds[i], c.Have.List(c.Kinds[i]))
	}
	if got, want := c.index.Serial(false), fresh.Serial(false); got != want {
		return fmt.Errorf("serial: got %d, want %d, that of a rebuilt index", got, want)
	}
	if got, want := c.index.Serial(true), fresh.Serial(true); got != want {
		return fmt.Errorf("serial of imports: got %d, want %d, that of a rebuilt index", got, want)
	}
	other := serve(t, c.directive, c.handler(t, fresh))
	for name := range m.names {
		for _, qtype := range queryTypes() {
			packet := request(t, name, mdns.StringToType[qtype], 0)
			if got, want := s.Serve(packet, dns.TCP), other.Serve(packet, dns.TCP); !bytes.Equal(got, want) {
				return fmt.Errorf("%s %s: got\n%swant, from a rebuilt index\n%s", name, qtype, digest(parse(t, got)), digest(parse(t, want)))
			}
		}
	}
	return nil
}
