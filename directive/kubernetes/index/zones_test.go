package index

import (
	"fmt"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/clustertest"
)

// A topology zone that no endpoint of a large Service has is found to be empty without going through the endpoints,
// whichever table the Service has. Other names of it have their endpoints.
func TestZoneOfNoEndpoint(t *testing.T) {
	for _, zoned := range []bool{false, true} {
		for _, merged := range []bool{false, true} {
			sl := slice("shop", "a", "db", "sql 5432/tcp")
			sl.Endpoints = clustertest.Packed(2*largeService, func(i int) cluster.Endpoint {
				ep := cluster.Endpoint{Addr: clustertest.Addr4(i), Hostname: fmt.Sprint("h", i), Ready: true}
				if merged {
					ep.Hostname = "h"
				}
				if zoned {
					ep.Zone = "other"
				}
				return ep
			})
			ix := load(newTestIndex(), namespaceObject("shop"), headless("shop", "db"), sl)
			e := ix.services.Get([]byte("\x02db\x04shop"))
			if e.table == nil || (e.table.runs.byLabel != nil) != merged || (e.table.buckets.shared != nil) == merged {
				t.Fatalf("merged %v: got another table", merged)
			}

			for _, c := range []struct {
				sel  Selection
				want int
			}{
				{Selection{Zone: []byte("\x06zone-a")}, 0},
				{Selection{Zone: []byte("\x06zone-a"), Port: []byte("sql"), Protocol: []byte("tcp")}, 0},
				{Selection{Zone: []byte("\x05other")}, map[bool]int{true: 2 * largeService}[zoned]},
				{Selection{}, 2 * largeService},
			} {
				for _, cursor := range []EndpointCursor{e.Endpoints(&c.sel), e.TargetsOf(&c.sel)} {
					if parts := len(cursor.parts); (parts == 0) != (c.want == 0) {
						t.Errorf("zones %v, merged %v, %q: got %d parts to go through", zoned, merged, c.sel.Zone, parts)
					}
				}
				n := 0
				for cursor := e.Endpoints(&c.sel); cursor.Next(&c.sel); n++ {
				}
				if n != c.want {
					t.Errorf("zones %v, merged %v, %q: got %d endpoints, want %d", zoned, merged, c.sel.Zone, n, c.want)
				}
			}
			if e.HasZone([]byte("\x06zone-a")) || e.HasZone([]byte("\x05other")) != zoned {
				t.Errorf("zones %v, merged %v: got another set of zones", zoned, merged)
			}
		}
	}
}
