package records

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/bound"
)

// manyObjects has 10,000 objects with some names each, and a wildcard.
func manyObjects(t testing.TB, names int) *rig {
	r := newRig(t, "records {\nobjects {\nconfigmaps\ndnsendpoints\ndelegate a a.example.test\nmax_records 200000\n}\n}")
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

// A change is answered within 50 ms of the watch event, beside 10,000 objects: the time from the event's
// arrival in the process to the first query with the new answer, for 300 changes of each kind.
func TestObjectsChangeTime(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures times")
	}
	r := manyObjects(t, 1)
	if !r.IsSynced() {
		t.Fatal("the objects have not been read")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.ApplyAll(ctx)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	for _, o := range []func(address string) cluster.Object{
		func(address string) cluster.Object {
			return configMap("a/17", 1, "hosts", address+" changed.a.example.test")
		},
		func(address string) cluster.Object {
			return endpoint("a/17", 1, rrs("endpoint.a.example.test", "A", address))
		},
	} {
		name := "changed.a.example.test"
		if kindOf(o("")) == cluster.DNSEndpoints {
			name = "endpoint.a.example.test"
		}
		var times []time.Duration
		for n := range 300 {
			address := fmt.Sprintf("10.1.%d.%d", n/256, n%256)
			object := o(address)
			start := time.Now()
			r.objectNames.Put(kindOf(object), object)
			for r.answer(name, "A") != address {
			}
			times = append(times, time.Since(start))
			time.Sleep(time.Millisecond)
		}
		slices.Sort(times)
		kind := kindOf(o("")).ObjectKind()
		t.Logf("%s: p50 %v, p99 %v, max %v", kind, times[150], times[297], times[299])
		bound.AtMost(t, "a change of a "+kind, times[299], 50*time.Millisecond)
	}
}
