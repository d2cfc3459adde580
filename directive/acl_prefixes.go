package directive

import (
	"net/netip"
	"slices"
)

// prefixes is a set of prefixes, with one hash set for each prefix length: a
// lookup costs the same however many prefixes there are.
type prefixes struct{ v4, v6 []prefixSet }

// A prefixSet holds the prefixes of one length.
type prefixSet struct {
	bits  int
	addrs map[netip.Addr]struct{}
}

func newPrefixes(list []netip.Prefix) *prefixes {
	s := &prefixes{}
	for _, p := range list {
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

func (s *prefixes) merge(other *prefixes) {
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
