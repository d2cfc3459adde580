package kubernetes

import "strings"

// An alias is the target of the CNAME records of a headless Service whose served
// endpoints are all in EndpointSlices with addressType FQDN and have one name. The names
// of the Service, of these endpoints and of their ports are then CNAMEs, as in CoreDNS.
// If the endpoints have several names, there is no answer: a name has one CNAME.
type alias struct {
	record string          // the CNAME record, with the owner wire.OwnerIsQuestion
	labels map[string]bool // of the endpoints
	zones  map[string]bool // their topology zones, as labels in wire form
	ports  *portSet
}

// alias returns nil for a Service without one.
func (e *entry) alias() *alias {
	if m := e.merged(); m != nil {
		return m.alias
	}
	return nil
}

// findAlias returns the alias of a Service with these slices, whose endpoints have no
// addresses. It returns nil if there are no names or several. The label of an endpoint
// without a hostname is its name with dashes.
func (s *serviceSpec) findAlias(ix *Index, slices []part) *alias {
	a, target := &alias{labels: map[string]bool{}, zones: map[string]bool{}}, ""
	unions := portUnions{sets: &ix.portSets}
	for _, p := range slices {
		for name, ep := range p.endpoints().Names() {
			switch {
			case !s.isServed(&ep):
				continue
			case target == "":
				target, a.ports = name, p.ports
			case target != name:
				return nil
			}
			if ep.Hostname == "" {
				ep.Hostname = strings.ReplaceAll(name, ".", "-")
			}
			a.labels[ep.Hostname] = true
			a.zones[string(appendDotted(nil, ep.Zone))] = true
			a.ports = unions.union(a.ports, p.ports)
		}
	}
	if a.record = cname(target, ix.settings.ttl); a.record == "" {
		return nil
	}
	return a
}

// hash returns a hash of everything that answers depend on. h is the hash of the
// Service's key.
func (a *alias) hash(h uint32) uint32 {
	h = fnv((h^a.ports.hash)*fnvPrime, a.record)
	sum := mix(h)
	for label := range a.labels {
		sum += mix(fnv(h, label))
	}
	for zone := range a.zones {
		sum += mix(fnv(h*fnvPrime, zone))
	}
	return sum
}
