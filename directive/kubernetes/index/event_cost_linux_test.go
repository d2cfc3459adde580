package index

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/clustertest"
)

// Processing a watch event takes time in proportion to the objects of its Service or address,
// and not to their square: four times as many may cost eight times as much.
func TestEventCostOfHugeObjects(t *testing.T) {
	bound.Only(t)
	bomb := headless("evil", "bomb")
	few := []cluster.Port{{Name: "p1", Protocol: "tcp", Port: 1}}
	sliceOf := func(name string, ports []cluster.Port, es cluster.Endpoints) *cluster.Slice {
		return &cluster.Slice{Namespace: "evil", Name: name, Service: "bomb", Ports: ports, Endpoints: es}
	}
	// endpoints returns n endpoints, of which the last is ready in every other version.
	endpoints := func(n, version int, f func(i int) cluster.Endpoint) cluster.Endpoints {
		return clustertest.Packed(n, func(i int) cluster.Endpoint {
			e := f(i)
			e.Ready = i < n-1 || version%2 == 0
			return e
		})
	}
	plain := func(i int) cluster.Endpoint { return cluster.Endpoint{Addr: clustertest.Addr4(i)} }
	hostnames := func(i int) cluster.Endpoint {
		return cluster.Endpoint{Addr: clustertest.Addr4(i), Hostname: fmt.Sprintf("h%d", i)}
	}
	for _, c := range []struct {
		what string
		n    int                                                      // of the smaller object
		make func(n, version int) (all []cluster.Object, changed int) // the last is the one that the event is about
	}{
		{"ports of a Service", 5000, func(n, version int) ([]cluster.Object, int) {
			ports := clustertest.ManyPorts("p", n)
			ports[n-1].Port += uint16(version)
			return []cluster.Object{clusterIP("evil", "bomb", "", "10.96.0.9"), &cluster.Service{Namespace: "evil", Name: "bomb", Ports: ports}}, 1
		}},
		{"ports of 1,000 endpoints", 5000, func(n, version int) ([]cluster.Object, int) {
			return []cluster.Object{bomb, sliceOf("bomb-1", clustertest.ManyPorts("p", n), endpoints(1000, version, plain))}, 1
		}},
		{"addresses", 25_000, func(n, version int) ([]cluster.Object, int) {
			return []cluster.Object{bomb, sliceOf("bomb-1", few, endpoints(n, version, plain))}, 1
		}},
		{"hostnames", 25_000, func(n, version int) ([]cluster.Object, int) {
			return []cluster.Object{bomb, sliceOf("bomb-1", few, endpoints(n, version, hostnames))}, 1
		}},
		{"addresses of one hostname", 25_000, func(n, version int) ([]cluster.Object, int) {
			return []cluster.Object{bomb, sliceOf("bomb-1", few, endpoints(n, version, func(i int) cluster.Endpoint {
				return cluster.Endpoint{Addr: clustertest.Addr4(i), Hostname: "h"}
			}))}, 1
		}},
		{"hostnames of one address", 25_000, func(n, version int) ([]cluster.Object, int) {
			return []cluster.Object{bomb, sliceOf("bomb-1", few, endpoints(n, version, func(i int) cluster.Endpoint {
				return cluster.Endpoint{Addr: clustertest.Addr4(1), Hostname: fmt.Sprintf("h%d", i)}
			}))}, 1
		}},
		{"slices of a Service", 250, func(n, version int) ([]cluster.Object, int) {
			all := []cluster.Object{bomb}
			for i := range n {
				all = append(all, sliceOf(fmt.Sprintf("bomb-%04d", i), clustertest.ManyPorts(fmt.Sprintf("s%d-", i), 20), endpoints(10, version, func(j int) cluster.Endpoint { return plain(10*i + j) })))
			}
			return all, n / 2
		}},
		{"slices with the same endpoints", 25, func(n, version int) ([]cluster.Object, int) {
			all := []cluster.Object{bomb}
			for i := range n {
				all = append(all, sliceOf(fmt.Sprintf("bomb-%04d", i), clustertest.ManyPorts(fmt.Sprintf("s%d-", i), 20), endpoints(1000, version, plain)))
			}
			return all, n / 2
		}},
		{"Services of one address", 1000, func(n, version int) ([]cluster.Object, int) {
			var all []cluster.Object
			for i := range n {
				name := fmt.Sprintf("same-%d", i)
				all = append(all, headless("evil", name), slice("evil", name+"-1", name, fmt.Sprintf("p1 %d/tcp", 1+version), "10.0.0.1"))
			}
			return all, n + 1 - n%2
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			cost := func(n int) time.Duration {
				all, changed := c.make(n, 0)
				ix := load(newTestIndex(), append(slices.Clone(all), namespaceObject("evil"))...)
				kind := cluster.Slices
				if _, ok := all[changed].(*cluster.Service); ok {
					kind = cluster.Services
				}
				least := time.Hour
				for version := range 7 {
					all, _ := c.make(n, version+1)
					before := bound.ThreadTime(t)
					ix.Put(kind, all[changed])
					least = min(least, bound.ThreadTime(t)-before)
				}
				return least
			}
			small, large := cost(c.n), cost(4*c.n)
			t.Logf("%d: %v, %d: %v", c.n, small, 4*c.n, large)
			if large > 8*max(small, 20*time.Microsecond) {
				t.Errorf("an event among %d takes %v, and among %d %v; want at most 8 times as much", c.n, small, 4*c.n, large)
			}
		})
	}
}
