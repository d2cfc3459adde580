package directive

import (
	"net/netip"
	"slices"
)

// A prefixes is a set of prefixes: a set of addresses for each of their lengths,
// so that looking an address up costs the same however many there are.
type prefixes struct{ v4, v6 []prefixSet }

// A prefixSet is prefixes of one length.
type prefixSet struct {
	bits  int
	addrs map[netip.Addr]struct{}
}

func newPrefixes(all []netip.Prefix) *prefixes {
	s := &prefixes{}
	for _, p := range all {
		s.add(p)
	}
	return s
}

func (s *prefixes) add(p netip.Prefix) {
	sets := &s.v4
	if p.Addr().Is6() {
		sets = &s.v6
	}
	i := slices.IndexFunc(*sets, func(set prefixSet) bool { return set.bits == p.Bits() })
	if i < 0 {
		i = len(*sets)
		*sets = append(*sets, prefixSet{p.Bits(), map[netip.Addr]struct{}{}})
	}
	(*sets)[i].addrs[p.Addr()] = struct{}{}
}

func (s *prefixes) join(other *prefixes) {
	for _, set := range slices.Concat(other.v4, other.v6) {
		for addr := range set.addrs {
			s.add(netip.PrefixFrom(addr, set.bits))
		}
	}
}

func (s *prefixes) contains(addr netip.Addr) bool {
	sets := s.v4
	if addr.Is6() {
		sets = s.v6
	}
	for _, set := range sets {
		p, err := addr.Prefix(set.bits)
		if err != nil {
			return false
		}
		if _, ok := set.addrs[p.Addr()]; ok {
			return true
		}
	}
	return false
}
