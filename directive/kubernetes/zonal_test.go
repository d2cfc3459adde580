package kubernetes

import (
	"fmt"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
)

// zoned serves a headless Service with n endpoints in each of two zones, near zone-a.
func zoned(t *testing.T, n int) *server {
	t.Helper()
	d := defaultOptions()
	d.zonal = true
	var endpoints []string
	for i := range n {
		endpoints = append(endpoints, fmt.Sprintf("10.1.%d.%d@zone-a", i/250, i%250+1), fmt.Sprintf("10.2.%d.%d@zone-b", i/250, i%250+1))
	}
	ix := load(d.newIndex(), namespaceObject("shop"), headless("shop", "db"), slice("shop", "db-1", "db", "sql 5432/tcp", endpoints...),
		slice("shop", "db-6", "db", "sql 5432/tcp", "fd00::1@zone-b"))
	h := d.handler(t, ix)
	h.near = new(nodeZone)
	h.near.set("zone-a")
	return serve(t, d, h)
}

// The endpoints of the node's zone are found with and without a table, and without an
// allocation.
func TestZonalPrefer(t *testing.T) {
	for _, n := range []int{3, 300} {
		s := zoned(t, n)
		for _, c := range []struct {
			allocCase
			want string // the beginning of all addresses
		}{
			{allocCase{"A", "db.shop.svc.cluster.local.", "A"}, "10.1."},
			{allocCase{"A at a port", "_sql._tcp.db.shop.svc.cluster.local.", "A"}, "10.1."},
			{allocCase{"AAAA, none in the zone", "db.shop.svc.cluster.local.", "AAAA"}, "fd00:"},
		} {
			run, last := s.answerer(t, c.allocCase)
			run()
			m := parse(t, last())
			if len(m.Answer) == 0 {
				t.Errorf("%d endpoints: %s: got %s, want records", n, c.name, digest(m))
			}
			for _, rr := range m.Answer {
				var text string
				switch rr := rr.(type) {
				case *mdns.A:
					text = rr.A.String()
				case *mdns.AAAA:
					text = rr.AAAA.String()
				}
				if len(text) < len(c.want) || text[:len(c.want)] != c.want {
					t.Errorf("%d endpoints: %s: got %s, want addresses that begin with %s", n, c.name, rr, c.want)
				}
			}
			if got := testing.AllocsPerRun(100, run); got != 0 {
				t.Errorf("%d endpoints: %s: got %v allocations, want 0", n, c.name, got)
			}
		}
	}
}

// The zone of a Node without the label, or whose name cannot be labels, is unknown: all
// endpoints are answered.
func TestNodeZoneUnknown(t *testing.T) {
	z := &nodeZone{node: "n1"}
	for _, c := range []struct {
		node cluster.Node
		want bool
	}{
		{cluster.Node{Name: "n2", OwnZone: "a"}, false},
		{cluster.Node{Name: "n1"}, false},
		{cluster.Node{Name: "n1", OwnZone: "eu..1"}, false},
		{cluster.Node{Name: "n1", OwnZone: "eu-1a"}, true},
		{cluster.Node{Name: "n2"}, true},
	} {
		z.Put(cluster.Nodes, &c.node)
		if got := z.labels.Load() != nil; got != c.want {
			t.Errorf("after %+v: zone known is %v, want %v", c.node, got, c.want)
		}
	}
	if z.Delete(cluster.Nodes, cluster.Key{Name: "n1"}); z.labels.Load() == nil {
		t.Error("after the deletion of the Node: the zone is unknown, want the last one")
	}
}
