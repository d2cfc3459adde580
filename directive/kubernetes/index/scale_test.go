package index

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
)

// A clusterSize is the size of a cluster: ClusterIP Services of ten endpoints, in one slice
// each, and headless ones of sixty, in namespaces of a hundred Services.
type clusterSize struct{ plain, headless int }

// largeCluster has the size that Kubernetes is tested for.
func largeCluster() clusterSize { return clusterSize{9000, 1000} }

func (cs clusterSize) services() int  { return cs.plain + cs.headless }
func (cs clusterSize) endpoints() int { return 10*cs.plain + 60*cs.headless }

func (cs clusterSize) namespaceOf(i int) string { return fmt.Sprintf("team-%d", i/100) }

// lists returns the objects. As from a source, only namespaces and the strings of ports
// share memory.
func (cs clusterSize) lists() (all [cluster.Kinds][]cluster.Object) {
	next := uint32(10<<24 | 128<<16) // endpoints' addresses
	var space string
	for i := range cs.services() {
		if i%100 == 0 {
			space = cs.namespaceOf(i)
			all[cluster.Namespaces] = append(all[cluster.Namespaces], namespaceObject(space))
		}
		name := fmt.Sprintf("service-%d", i)
		s := &cluster.Service{Namespace: space, Name: name, Headless: i >= cs.plain, Selector: true, Ports: []cluster.Port{{Name: "http", Protocol: "tcp", Port: 8080}}}
		n := 60
		if !s.Headless {
			n = 10
			s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, byte(64 + i>>16), byte(i >> 8), byte(i)})}
		}
		all[cluster.Services] = append(all[cluster.Services], s)
		all[cluster.Slices] = append(all[cluster.Slices], cs.slice(i, 0, next, n))
		next += uint32(n)
	}
	return all
}

// slice returns one slice of Service i, with n endpoints.
func (cs clusterSize) slice(i, part int, first uint32, n int) *cluster.Slice {
	var buf []byte
	for a := first; a < first+uint32(n); a++ {
		buf = cluster.AppendEndpoint(buf, cluster.Endpoint{Addr: netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)}), Ready: true})
	}
	service := fmt.Sprintf("service-%d", i)
	return &cluster.Slice{Namespace: cs.namespaceOf(i), Name: fmt.Sprintf("%s-x%04d", service, part), Service: service,
		Ports: []cluster.Port{{Name: "http", Protocol: "tcp", Port: 8080}}, Endpoints: cluster.Endpoints(buf)}
}

// heapInUse returns the bytes in use after a collection.
func heapInUse() int {
	runtime.GC()
	runtime.GC() // The second collection frees the memory of pools.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// newIndex lists the objects into a new index.
func (cs clusterSize) newIndex() *Index {
	ix := newTestIndex()
	cs.relist(ix)
	return ix
}

func (cs clusterSize) relist(ix *Index) {
	all := cs.lists()
	for _, kind := range watchedKinds() {
		relist(ix, kind, all[kind])
		all[kind] = nil
	}
}

// The index has a limited size for each endpoint, and another list of the same objects adds
// no memory. BenchmarkList reports the size of larger clusters.
func TestMemoryOfIndex(t *testing.T) {
	w := clusterSize{900, 100}
	before := heapInUse()
	ix := w.newIndex()
	first := heapInUse() - before
	if most := 48 * w.endpoints(); first > most {
		t.Errorf("index of %d endpoints: got %d bytes, want at most %d", w.endpoints(), first, most)
	}
	w.relist(ix)
	if again := heapInUse() - before; again > first+first/50 {
		t.Errorf("after a second list: got %d bytes, want at most 2%% more than %d", again, first)
	}
	shrunk := clusterSize{90, 10}
	shrunk.relist(ix)
	if rest := heapInUse() - before; rest > first/5 {
		t.Errorf("after a list with a tenth of the objects: got %d bytes, want at most a fifth of %d", rest, first)
	}
	runtime.KeepAlive(ix)
}

// An event costs as much as its slice is large, however many endpoints the Service has.
func TestEventCostIndependentOfService(t *testing.T) {
	ix := clusterSize{900, 100}.newIndex()
	w := largeCluster()
	service, all := w.largeService(50, 100)
	ix.Put(cluster.Services, service)
	for _, sl := range all {
		ix.Put(cluster.Slices, sl)
	}
	states := [2]*cluster.Slice{withAddress(all[20], 50, netip.AddrFrom4([4]byte{10, 250, 0, 1})), all[20]}
	const events = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range events {
		ix.Put(cluster.Slices, states[i%2])
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / events; n > 32<<10 {
		t.Errorf("an event of a Service with 5,000 endpoints: got %d bytes allocated, want at most %d", n, 32<<10)
	}
	if n := (after.Mallocs - before.Mallocs) / events; n > 40 {
		t.Errorf("an event of a Service with 5,000 endpoints: got %d allocations, want at most 40", n)
	}
}

func BenchmarkList(b *testing.B) {
	for _, w := range []clusterSize{{900, 100}, largeCluster(), {90_000, 10_000}} {
		b.Run(fmt.Sprintf("%d Services, %d endpoints", w.services(), w.endpoints()), func(b *testing.B) {
			var took time.Duration
			held := 0
			for b.Loop() {
				before := heapInUse()
				all := w.lists()
				ix := newTestIndex()
				start := time.Now()
				for _, kind := range watchedKinds() {
					relist(ix, kind, all[kind])
					all[kind] = nil
				}
				took += time.Since(start)
				held = heapInUse() - before
				runtime.KeepAlive(ix)
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/list")
			b.ReportMetric(float64(held)/float64(w.services()), "B/service")
			b.ReportMetric(float64(held)/float64(w.endpoints()), "B/endpoint")
		})
	}
}

// largeService returns one more headless Service, with these slices.
func (cs clusterSize) largeService(slices, each int) (service *cluster.Service, all []*cluster.Slice) {
	i := cs.services() // behind all others, in a namespace that exists
	name, space := fmt.Sprintf("service-%d", i), cs.namespaceOf(0)
	service = &cluster.Service{Namespace: space, Name: name, Headless: true, Selector: true}
	for part := range slices {
		sl := cs.slice(i, part, uint32(10<<24|200<<16)+uint32(part*each*2), each)
		sl.Namespace = space
		all = append(all, sl)
	}
	return service, all
}

// withAddress returns the slice with one address replaced.
func withAddress(sl *cluster.Slice, at int, by netip.Addr) *cluster.Slice {
	var buf []byte
	i := 0
	for ep := range sl.Endpoints.All() {
		if i == at {
			ep.Addr = by
		}
		buf = cluster.AppendEndpoint(buf, ep)
		i++
	}
	next := *sl
	next.Endpoints = cluster.Endpoints(buf)
	return &next
}

// withHostnames returns the slice with a hostname for every endpoint, as a StatefulSet has.
func withHostnames(sl *cluster.Slice, from int) *cluster.Slice {
	var buf []byte
	for ep := range sl.Endpoints.All() {
		ep.Hostname = fmt.Sprintf("db-%d", from)
		from++
		buf = cluster.AppendEndpoint(buf, ep)
	}
	next := *sl
	next.Endpoints = cluster.Endpoints(buf)
	return &next
}

// An event replaces one Pod by another, as a rolling update does.
func BenchmarkEvent(b *testing.B) {
	for _, c := range []struct {
		clusterSize
		slices, each int
		called       bool
	}{
		{largeCluster(), 1, 3, false}, {largeCluster(), 1, 60, false}, {largeCluster(), 1, 100, false}, {largeCluster(), 50, 100, false}, {largeCluster(), 50, 100, true},
		{clusterSize{90_000, 10_000}, 1, 60, false}, {clusterSize{90_000, 10_000}, 50, 100, false},
	} {
		what := ""
		if c.called {
			what = " with hostnames"
		}
		b.Run(fmt.Sprintf("%d slices of %d endpoints%s among %d Services", c.slices, c.each, what, c.services()), func(b *testing.B) {
			ix := c.newIndex()
			service, all := c.largeService(c.slices, c.each)
			ix.Put(cluster.Services, service)
			for i, sl := range all {
				if c.called {
					all[i] = withHostnames(sl, i*c.each)
				}
				ix.Put(cluster.Slices, all[i])
			}
			sl := all[len(all)/2]
			states := [2]*cluster.Slice{sl, withAddress(sl, c.each/2, netip.AddrFrom4([4]byte{10, 129, 0, 1}))}
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				ix.Put(cluster.Slices, states[i%2])
			}
		})
	}
}
