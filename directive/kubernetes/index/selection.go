package index

import (
	"net/netip"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// A Selection describes the endpoints that a name stands for. A field that is nil selects all.
type Selection struct {
	ClusterIPs bool       // the Service's ClusterIPs instead of endpoints
	Portless   bool       // SRV records have port 0
	AnyForm    bool       // Label may be a hostname, an address or a hash (compatible kube-dns)
	Hashed     bool       // Label is a hash
	Hash       uint32     // the hash
	Label      []byte     // an endpoint's label without its length
	Addr       netip.Addr // the address that Label is made of
	Cluster    []byte     // labels of a cluster's ID
	Zone       []byte     // labels of a topology zone
	Port       []byte     // name of a port without the underscore
	Protocol   []byte
}

// mayMatch reports whether endpoints with these ports may be selected.
func (sel *Selection) mayMatch(ports *PortSet) bool {
	return (sel.Protocol == nil || ports.Has(sel)) && (sel.Cluster == nil || equalLabels(sel.Cluster, ports.Cluster))
}

// matches reports whether the selection includes an endpoint.
func (sel *Selection) matches(ep *cluster.Endpoint) bool {
	switch {
	case sel.Zone != nil && !equalLabels(sel.Zone, ep.Zone):
		return false
	case sel.Label == nil:
		return true
	case ep.Hostname != "" && string(sel.Label) == ep.Hostname:
		return true
	case ep.Hostname != "" && !sel.AnyForm:
		return false
	}
	return sel.Addr == ep.Addr || sel.Hashed && sel.Hash == hashOf(ep.Addr)
}

// MatchesClusterIP reports whether the selection includes a ClusterIP.
func (sel *Selection) MatchesClusterIP(ip netip.Addr) bool {
	return !sel.Hashed || sel.Hash == hashOf(ip)
}

// An EndpointCursor moves over the endpoints of an entry that a selection includes; each
// call gets the same selection. The addresses of one label are consecutive. It is a value:
// an iterator function would be allocated for each query.
type EndpointCursor struct {
	parts     []Part
	numbers   []uint32          // indexes of the parts that have the port; nil is all
	Part      *Part             // the current part
	endpoints cluster.Endpoints // of the part, after the cursor
	left      uint32            // endpoints of the part, after the cursor, that are served
	Family    wire.Type         // if not 0, parts of the other family are skipped
	notReady  bool              // includes endpoints that are not ready
	oneFamily bool              // the endpoints of each part have one family
	oneLabel  bool              // only one endpoint of each part is wanted
	Endpoint  cluster.Endpoint
}

// Endpoints returns a cursor over the endpoints that sel selects.
func (e *Entry) Endpoints(sel *Selection) EndpointCursor {
	c := EndpointCursor{parts: e.Parts, notReady: e.PublishNotReady}
	if e.table != nil {
		c.searchTable(e.table, sel)
	}
	return c
}

// searchTable limits the cursor to the parts that the table finds.
func (c *EndpointCursor) searchTable(t *endpointTable, sel *Selection) {
	c.parts, c.oneFamily = t.find(sel, c.parts)
	c.numbers = t.ports.find(sel)
}

// TargetsOf returns a cursor over the endpoints that sel selects, which may leave out
// all but the first one of each label.
func (e *Entry) TargetsOf(sel *Selection) EndpointCursor {
	c := e.Endpoints(sel)
	c.oneLabel = sel.Label != nil && !sel.AnyForm

	switch m := e.Merged(); {
	case m == nil || sel.Label != nil:
	case sel.Zone == nil:
		c.parts, c.oneFamily = m.targets, false
	case e.table.hasZones():
		c.parts, c.oneFamily = e.table.zones[string(sel.Zone)].targets, false
	}
	return c
}

// Next moves to the next endpoint and reports whether there is one.
func (c *EndpointCursor) Next(sel *Selection) bool {
	for !c.NextInPart(sel) {
		if !c.NextPart(sel) {
			return false
		}
	}
	return true
}

// NextPart moves in front of the next part that may have a selected endpoint, and
// reports whether there is one.
func (c *EndpointCursor) NextPart(sel *Selection) bool {
	for len(c.parts) > 0 {
		var p *Part
		switch {
		case c.numbers == nil:
			p, c.parts = &c.parts[0], c.parts[1:]
		case len(c.numbers) == 0:
			return false
		default:
			p, c.numbers = &c.parts[c.numbers[0]], c.numbers[1:]
		}
		if p.Served == 0 || !sel.mayMatch(p.Ports) {
			continue
		}

		c.Part, c.endpoints, c.left = p, p.Endpoints(), p.Served
		if c.Family != 0 && c.oneFamily {
			if c.endpoints.Next(&c.Endpoint); FamilyOf(c.Endpoint.Addr) != c.Family {
				continue
			}
		}
		return true
	}
	return false
}

// NextInPart moves to the part's next endpoint and reports whether there is one.
func (c *EndpointCursor) NextInPart(sel *Selection) bool {
	for {
		if sel.Addr.Is4() {
			c.endpoints = c.endpoints.From(sel.Addr.As4())
		}
		if len(c.endpoints) == 0 || c.left == 0 {
			return false
		}

		c.endpoints = c.endpoints.Next(&c.Endpoint)
		if !c.Endpoint.Ready && !c.notReady {
			continue
		}
		if c.left--; sel.matches(&c.Endpoint) {
			if c.oneLabel {
				c.left = 0
			}
			return true
		}
	}
}

// A SRVTarget is the target of SRV records. An endpoint with a hostname may have
// several addresses, which are consecutive.
type SRVTarget struct {
	Ports    *PortSet
	Hostname string
}

// Equals reports whether both are the target of one SRV record: an endpoint without a hostname
// has a target of its own.
func (t SRVTarget) Equals(o SRVTarget) bool { return t.Hostname != "" && t == o }
