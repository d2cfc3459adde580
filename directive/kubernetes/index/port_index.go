package index

const (
	// manyPortSets is how many parts may have different ports before these are
	// indexed, and maxIndexedPorts how many ports the index may have.
	manyPortSets    = 16
	maxIndexedPorts = 1 << 16
)

// A portIndex has the numbers of the parts that have a port of some name and protocol, or,
// with an empty name, of some protocol. It is nil if the parts have few port sets.
type portIndex map[portKey][]uint32

type portKey struct{ protocol, name string }

func indexPorts(parts []Part) portIndex {
	if !haveManyPortSets(parts) {
		return nil
	}

	index := portIndex{}
	for i := range parts {
		protocol := ""
		for _, p := range parts[i].Ports.Named { // by protocol and name
			key := portKey{p.Protocol, p.Name}
			index[key] = append(index[key], uint32(i))
			if p.Protocol != protocol {
				protocol = p.Protocol
				index[portKey{protocol, ""}] = append(index[portKey{protocol, ""}], uint32(i))
			}
		}
	}
	return index
}

// haveManyPortSets reports whether an index of the parts' ports is worth its memory.
func haveManyPortSets(parts []Part) bool {
	if len(parts) < manyPortSets {
		return false
	}
	sets, named := map[*PortSet]struct{}{}, 0
	for i := range parts {
		ports := parts[i].Ports
		if _, known := sets[ports]; !known {
			sets[ports] = struct{}{}
			named += len(ports.Named)
		}
	}
	return len(sets) >= manyPortSets && named <= maxIndexedPorts
}

// find returns the numbers of the parts that have the ports of sel; nil means that any part may
// have them.
func (x portIndex) find(sel *Selection) []uint32 {
	if x == nil || sel.Protocol == nil || sel.Label != nil || sel.Zone != nil {
		return nil
	}
	if numbers := x[portKey{string(sel.Protocol), string(sel.Port)}]; numbers != nil {
		return numbers
	}
	return []uint32{}
}
