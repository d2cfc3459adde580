package records

import (
	"fmt"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/internal/objects"
)

// manyObjects has 10,000 objects with some names each, and a wildcard.
func manyObjects(t testing.TB, names int) *rig {
	r := newRig(t, "records {\nobjects {\nconfigmaps\ndelegate a a.example.test\nmax_records 200000\n}\n}")
	for i := range 10_000 {
		var lines strings.Builder
		for n := range names {
			fmt.Fprintf(&lines, "10.%d.%d.%d h%d-%d.a.example.test\n", n, i/256, i%256, i, n)
		}
		r.Put(cluster.ConfigMaps, configMap(fmt.Sprintf("a/%d", i), 1, "hosts", lines.String()))
	}
	r.Put(cluster.ConfigMaps, configMap("a/wild", 1, "zone", "*.wild.a.example.test. A 10.0.0.1"))
	for _, kind := range []cluster.Kind{cluster.ConfigMaps, cluster.DNSEndpoints} {
		r.Listed(kind, func(cluster.Key) bool { return true })
	}
	r.settle()
	return r
}

// objectQueries are the ways of a query past many objects.
var objectQueries = []struct {
	name, query string
	answers     uint16
}{
	{"exact", "h9999-0.a.example.test.", 1},
	{"wildcard", "x.wild.a.example.test.", 1},
	{"delegated", "none.a.example.test.", 0},
	{"elsewhere", "www.elsewhere.test.", 0},
}

// A query for a name that objects have, and one that passes them, allocate nothing.
func TestObjectsAllocations(t *testing.T) {
	r := manyObjects(t, 1)
	for _, c := range objectQueries {
		p := packet(t, c.query, mdns.TypeA)
		if got := r.ask(c.query, mdns.TypeA).Answer; len(got) != int(c.answers) {
			t.Errorf("%s: got %v, want %d records", c.query, got, c.answers)
		}
		if n := testing.AllocsPerRun(100, func() { r.send(p) }); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", c.query, n)
		}
	}
}

// BenchmarkObjects measures a query, with the server around the directive, that 100,000 records of objects
// answer or that passes them, and the same without objects.
func BenchmarkObjects(b *testing.B) {
	r := manyObjects(b, 10)
	if n := r.Total(); n != 100_001 {
		b.Fatalf("got %d records, want 100,001", n)
	}
	measure := func(name string, on *server, query string) {
		p := packet(b, query, mdns.TypeA)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				on.send(p)
			}
		})
	}
	for _, c := range objectQueries {
		measure(c.name, r.server, c.query)
	}
	measure("without", serve(b, refuser{}), "www.elsewhere.test.")
}

// BenchmarkObjectsChange measures the time from the arrival of a watch event to the state from which
// queries are answered, with 10,000 objects.
func BenchmarkObjectsChange(b *testing.B) {
	r := manyObjects(b, 1)
	p := packet(b, "changed.a.example.test.", mdns.TypeA)
	for kind, object := range map[string]func(address string) cluster.Object{
		"ConfigMap": func(address string) cluster.Object {
			return configMap("a/17", 1, "hosts", address+" changed.a.example.test")
		},
		"DNSEndpoint": func(address string) cluster.Object {
			return endpoint("a/17", 1, rrs("changed.a.example.test", "A", address))
		},
	} {
		b.Run(kind, func(b *testing.B) {
			n := 0
			for b.Loop() {
				n++
				o := object(fmt.Sprintf("10.1.%d.%d", n/256%256, n%256))
				r.objectNames.Put(kindOf(o), o)
				for r.Step() != objects.Idle {
				}
				r.send(p)
			}
		})
	}
}
