package index

import (
	"net/netip"

	"github.com/seamark/seamark/cluster"
)

// runs find the endpoints of merged parts, where many may share a label or an address: each
// label, and each address, has parts with just its endpoints. An event makes them anew.
type runs struct {
	byLabel map[endpointID][]Part // the endpoints of each part have one family
	byAddr  map[netip.Addr][]Part
}

// indexRuns returns the runs of merged parts. There the endpoints with one label are
// consecutive, and among them those of one family.
func indexRuns(parts []Part) runs {
	r := runs{map[endpointID][]Part{}, map[netip.Addr][]Part{}}
	for i := range parts {
		ports := parts[i].Ports
		clusterID := string(AppendLabels(nil, ports.Cluster))

		for rest := parts[i].Endpoints(); rest != ""; {
			var first cluster.Endpoint
			after := rest.Next(&first)
			id := endpointIDOf(clusterID, first)

			// The run ends where the label or the family changes.
			run, n := rest, uint32(0)
			for ep := first; ep.Addr.Is4() == first.Addr.Is4() && endpointIDOf(clusterID, ep) == id; {
				r.byAddr[ep.Addr] = append(r.byAddr[ep.Addr], newRun(ports, rest[:len(rest)-len(after)], 1))
				n++
				if rest = after; rest == "" {
					break
				}
				after = rest.Next(&ep)
			}
			r.byLabel[id] = append(r.byLabel[id], newRun(ports, run[:len(run)-len(rest)], n))
		}
	}
	return r
}

// find returns the endpoints of the selected label.
func (r *runs) find(sel *Selection) []Part {
	if sel.Addr.IsValid() {
		return r.byLabel[endpointID{cluster: string(sel.Cluster), addr: sel.Addr}]
	}
	return r.byLabel[endpointID{cluster: string(sel.Cluster), hostname: string(sel.Label)}]
}

// newRun returns a part without a name and records.
func newRun(ports *PortSet, endpoints cluster.Endpoints, n uint32) Part {
	end := uint32(len(endpoints))
	return Part{Ports: ports, data: string(endpoints), endpointsEnd: end, aEnd: end, Served: n}
}
