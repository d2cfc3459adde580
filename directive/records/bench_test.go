package records

import (
	"fmt"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
)

// manyObjects has 10,000 objects with a name each, and a wildcard.
func manyObjects(t testing.TB) *rig {
	r := newRig(t, "records {\nobjects {\nconfigmaps\ndelegate a a.example.test\n}\n}")
	r.list()
	for i := range 10_000 {
		r.Put(cluster.ConfigMaps, configMap(fmt.Sprintf("a/%d", i), 1, "hosts", fmt.Sprintf("10.0.%d.%d h%d.a.example.test", i/256, i%256, i)))
	}
	r.put(configMap("a/wild", 1, "zone", "*.wild.a.example.test. A 10.0.0.1"))
	return r
}

// objectQueries are the ways of a query past many objects.
var objectQueries = []struct {
	name, query string
	answers     uint16
}{
	{"exact", "h9999.a.example.test.", 1},
	{"wildcard", "x.wild.a.example.test.", 1},
	{"delegated", "none.a.example.test.", 0},
	{"elsewhere", "www.elsewhere.test.", 0},
}

// A query for a name that objects have, and one that passes them, allocate nothing.
func TestObjectsAllocations(t *testing.T) {
	r := manyObjects(t)
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

// BenchmarkObjects measures a query, with the server around the directive, that 10,000 objects answer
// or that passes them.
func BenchmarkObjects(b *testing.B) {
	r := manyObjects(b)
	for _, c := range objectQueries {
		p := packet(b, c.query, mdns.TypeA)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.send(p)
			}
		})
	}
	none := serve(b, refuser{})
	p := packet(b, "www.elsewhere.test.", mdns.TypeA)
	b.Run("without", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			none.send(p)
		}
	})
}
