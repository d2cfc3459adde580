package index

import (
	"strings"

	"github.com/seamark/seamark/wire"
)

// An Alias is the target of the CNAME records of a headless Service whose served
// endpoints are all in EndpointSlices with addressType FQDN and have one name. The names
// of the Service and of these endpoints are then CNAMEs, and the names of their ports have SRV
// records that lead to the target.
// If the endpoints have several names, there is no answer: a name has one CNAME.
type Alias struct {
	Record string          // the CNAME record, with the owner wire.OwnerIsQuestion
	Labels map[string]bool // of the endpoints
	Zones  map[string]bool // their topology zones, as labels in wire form
	Ports  *PortSet
}

// Target returns the target in wire form.
func (a *Alias) Target() string { return a.Record[len(wire.OwnerIsQuestion)+10:] }

// Alias returns nil for a Service without one.
func (e *Entry) Alias() *Alias {
	if m := e.Merged(); m != nil {
		return m.alias
	}
	return nil
}

// findAlias returns the alias of a Service with these slices, whose endpoints have no
// addresses. It returns nil if there are no names or several. The label of an endpoint
// without a hostname is its name with dashes.
func (s *Spec) findAlias(ix *Index, slices []Part) *Alias {
	a, target := &Alias{Labels: map[string]bool{}, Zones: map[string]bool{}}, ""
	unions := portUnions{sets: &ix.portSets}

	for _, p := range slices {
		for name, ep := range p.Endpoints().Names() {
			switch {
			case !s.IsServed(&ep):
				continue
			case target == "":
				target, a.Ports = name, p.Ports
			case target != name: // a name has one CNAME record (RFC 2181 §10.1)
				return nil
			}

			if ep.Hostname == "" {
				ep.Hostname = strings.ReplaceAll(name, ".", "-")
			}
			a.Labels[ep.Hostname] = true
			a.Zones[string(AppendLabels(nil, ep.Zone))] = true
			a.Ports = unions.union(a.Ports, p.Ports)
		}
	}

	if a.Record = cname(target, ix.settings.TTL); a.Record == "" {
		return nil
	}
	return a
}

// hash returns a hash of everything that answers depend on. h is the hash of the
// Service's key.
func (a *Alias) hash(h uint32) uint32 {
	h = fnv((h^a.Ports.hash)*fnvPrime, a.Record)
	sum := mix(h)
	for label := range a.Labels {
		sum += mix(fnv(h, label))
	}
	for zone := range a.Zones {
		sum += mix(fnv(h*fnvPrime, zone))
	}
	return sum
}
