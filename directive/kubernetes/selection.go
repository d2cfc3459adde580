package kubernetes

import (
	"net/netip"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// A selection describes the endpoints that a name stands for. A field that is nil selects all.
type selection struct {
	clusterIPs bool       // the Service's ClusterIPs instead of endpoints
	portless   bool       // SRV records have port 0
	anyForm    bool       // label may be a hostname, an address or a hash (compatible kube-dns)
	hashed     bool       // label is a hash
	hash       uint32     // the hash
	label      []byte     // an endpoint's label without its length
	addr       netip.Addr // the address that label is made of
	cluster    []byte     // labels of a cluster's ID
	zone       []byte     // labels of a topology zone
	port       []byte     // name of a port without the underscore
	protocol   []byte
}

// mayMatch reports whether endpoints with these ports may be selected.
func (sel *selection) mayMatch(ports *portSet) bool {
	return (sel.protocol == nil || ports.has(sel)) && (sel.cluster == nil || isLabels(sel.cluster, ports.cluster))
}

// matches reports whether the selection includes an endpoint.
func (sel *selection) matches(ep *cluster.Endpoint) bool {
	switch {
	case sel.zone != nil && !isLabels(sel.zone, ep.Zone):
		return false
	case sel.label == nil:
		return true
	case ep.Hostname != "" && string(sel.label) == ep.Hostname:
		return true
	case ep.Hostname != "" && !sel.anyForm:
		return false
	}
	return sel.addr == ep.Addr || sel.hashed && sel.hash == hashOf(ep.Addr)
}

// matchesClusterIP reports whether the selection includes a ClusterIP.
func (sel *selection) matchesClusterIP(ip netip.Addr) bool {
	return !sel.hashed || sel.hash == hashOf(ip)
}

// An endpointCursor moves over the endpoints of an entry that a selection includes; each
// call gets the same selection. The addresses of one label are consecutive. It is a value:
// an iterator function would be allocated for each query.
type endpointCursor struct {
	parts     []part
	numbers   []uint32          // indexes of the parts that have the port; nil is all
	part      *part             // the current part
	endpoints cluster.Endpoints // of the part, after the cursor
	left      uint32            // endpoints of the part, after the cursor, that are served
	family    wire.Type         // if not 0, parts of the other family are skipped
	notReady  bool              // includes endpoints that are not ready
	oneFamily bool              // the endpoints of each part have one family
	oneLabel  bool              // only one endpoint of each part is wanted
	ep        cluster.Endpoint
}

func (e *entry) endpoints(sel *selection) endpointCursor {
	c := endpointCursor{parts: e.answerParts, notReady: e.publishNotReady}
	if e.table != nil {
		c.searchTable(e.table, sel)
	}
	return c
}

// searchTable limits the cursor to the parts that the table finds.
func (c *endpointCursor) searchTable(t *endpointTable, sel *selection) {
	c.parts, c.oneFamily = t.find(sel, c.parts)
	c.numbers = t.numbersOf(sel)
}

// targetsOf returns a cursor over the endpoints that sel selects, which may leave out
// all but the first one of each label.
func (e *entry) targetsOf(sel *selection) endpointCursor {
	c := e.endpoints(sel)
	c.oneLabel = sel.label != nil && !sel.anyForm
	switch m := e.merged(); {
	case m == nil || sel.label != nil:
	case sel.zone == nil:
		c.parts, c.oneFamily = m.targets, false
	case e.table.byZone != nil:
		c.parts, c.oneFamily = e.table.byZone[string(sel.zone)].targets, false
	}
	return c
}

// next moves to the next endpoint and reports whether there is one.
func (c *endpointCursor) next(sel *selection) bool {
	for !c.nextInPart(sel) {
		if !c.nextPart(sel) {
			return false
		}
	}
	return true
}

// nextPart moves in front of the next part that may have a selected endpoint, and
// reports whether there is one.
func (c *endpointCursor) nextPart(sel *selection) bool {
	for len(c.parts) > 0 {
		var p *part
		switch {
		case c.numbers == nil:
			p, c.parts = &c.parts[0], c.parts[1:]
		case len(c.numbers) == 0:
			return false
		default:
			p, c.numbers = &c.parts[c.numbers[0]], c.numbers[1:]
		}
		if p.served == 0 || !sel.mayMatch(p.ports) {
			continue
		}
		c.part, c.endpoints, c.left = p, p.endpoints(), p.served
		if c.family != 0 && c.oneFamily {
			if c.endpoints.Next(&c.ep); familyOf(c.ep.Addr) != c.family {
				continue
			}
		}
		return true
	}
	return false
}

// nextInPart moves to the part's next endpoint and reports whether there is one.
func (c *endpointCursor) nextInPart(sel *selection) bool {
	for {
		if sel.addr.Is4() {
			c.endpoints = c.endpoints.From(sel.addr.As4())
		}
		if len(c.endpoints) == 0 || c.left == 0 {
			return false
		}
		c.endpoints = c.endpoints.Next(&c.ep)
		if !c.ep.Ready && !c.notReady {
			continue
		}
		if c.left--; sel.matches(&c.ep) {
			if c.oneLabel {
				c.left = 0
			}
			return true
		}
	}
}

// A srvTarget is the target of SRV records. An endpoint with a hostname may have
// several addresses, which are consecutive.
type srvTarget struct {
	ports    *portSet
	hostname string
}

func (t srvTarget) equals(o srvTarget) bool { return t.hostname != "" && t == o }
