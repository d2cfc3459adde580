package directive

import (
	"net/netip"
	"slices"
)

// prefixes is a set of prefixes, for acl and ratelimit. A lookup costs the same however many prefixes
// there are: it hashes the address once for each prefix length.
type prefixes struct {
	set  map[netip.Prefix]struct{}
	bits []int // the lengths in set
}

func newPrefixes(list []netip.Prefix) *prefixes {
	s := &prefixes{}
	for _, p := range list {
		s.add(p)
	}
	return s
}

func (s *prefixes) add(p netip.Prefix) {
	if s.set == nil {
		s.set = map[netip.Prefix]struct{}{}
	}
	s.set[p] = struct{}{}
	if !slices.Contains(s.bits, p.Bits()) {
		s.bits = append(s.bits, p.Bits())
	}
}

func (s *prefixes) merge(other *prefixes) {
	for p := range other.set {
		s.add(p)
	}
}

func (s *prefixes) contains(addr netip.Addr) bool {
	for _, bits := range s.bits {
		if p, err := addr.Prefix(bits); err == nil { // IPv4 has no longer prefixes than 32
			if _, ok := s.set[p]; ok {
				return true
			}
		}
	}
	return false
}
