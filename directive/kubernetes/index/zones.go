package index

import (
	"slices"

	"github.com/seamark/seamark/wire"
)

// A zoneIndex finds endpoints by the labels of their topology zone. A name between such a name
// and the Service's has an empty value. It is nil if there are no zones.
type zoneIndex map[string]zoneParts

// zoneParts are the endpoints of one topology zone.
type zoneParts struct {
	endpoints []Part // each part has endpoints of one family
	targets   []Part // one endpoint for each label
}

func indexZones(e *Entry) zoneIndex {
	type zone struct {
		ipv4, ipv6, targets partGroups
		last                SRVTarget // of the targets
	}
	zones := map[string]*zone{}
	for ports, ep := range e.Served() {
		if ep.Zone == "" {
			continue
		}
		z := zones[ep.Zone]
		if z == nil {
			z = new(zone)
			zones[ep.Zone] = z
		}

		if ep.Addr.Is4() {
			z.ipv4.add(ports, *ep)
		} else {
			z.ipv6.add(ports, *ep)
		}
		// The endpoints of one hostname are consecutive, and one target stands for all.
		if target := (SRVTarget{ports, ep.Hostname}); !target.Equals(z.last) {
			z.targets.add(ports, *ep)
			z.last = target
		}
	}
	if len(zones) == 0 {
		return nil
	}

	index := zoneIndex{}
	for name, z := range zones {
		labels := string(AppendLabels(nil, name))
		index[labels] = zoneParts{slices.Concat(z.ipv4.parts(), z.ipv6.parts()), z.targets.parts()}
		for labels = labels[1+labels[0]:]; labels != ""; labels = labels[1+labels[0]:] {
			if _, known := index[labels]; !known {
				index[labels] = zoneParts{}
			}
		}
	}
	return index
}

// addsZone reports whether an added endpoint is in a topology zone.
func (d *endpointDiff) addsZone() bool {
	return slices.ContainsFunc(d.added, func(r endpointRef) bool { return r.ep.Zone != "" })
}

// HasZone reports whether a topology zone has these labels, or ends in them.
func (e *Entry) HasZone(labels []byte) bool {
	if e.table.hasZones() {
		_, known := e.table.zones[string(labels)]
		return known
	}

	var all Selection
	for c := e.Endpoints(&all); c.Next(&all); {
		var room [wire.MaxName]byte
		if EndsIn(AppendLabels(room[:0], c.Endpoint.Zone), labels) {
			return true
		}
	}
	return false
}
