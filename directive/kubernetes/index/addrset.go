package index

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
)

// A set holds different values: in a list, or in a map if they are many. It is reused.
type set[T comparable] struct {
	list  []T
	items map[T]struct{} // nil if the values are in the list
	spare map[T]struct{} // for items; empty unless items is it
}

// mapThreshold is the smallest number of values for which a map is faster than a list.
const mapThreshold = 24

// maxSpare is the largest number of values for which a map is reused.
const maxSpare = 8 * mapThreshold

// reset empties the set for about n values.
func (s *set[T]) reset(n int) {
	if len(s.items) > maxSpare {
		s.spare = nil
	}
	clear(s.spare)
	s.list, s.items = s.list[:0], nil
	if n > mapThreshold {
		s.useMap(n)
	} else if cap(s.list) < n {
		s.list = make([]T, 0, mapThreshold)
	}
}

// useMap prepares a map for about n values.
func (s *set[T]) useMap(n int) {
	if s.items = s.spare; s.items == nil || n > maxSpare {
		s.items = make(map[T]struct{}, n)
	}
	if n <= maxSpare {
		s.spare = s.items
	}
}

func (s *set[T]) has(v T) bool {
	if s.items == nil {
		return slices.Contains(s.list, v)
	}
	_, ok := s.items[v]
	return ok
}

// add adds a value and reports whether it was not in the set.
func (s *set[T]) add(v T) bool {
	if s.items == nil {
		if slices.Contains(s.list, v) {
			return false
		}
		s.list = append(s.list, v)
		if len(s.list) > mapThreshold {
			s.useMap(2 * len(s.list))
			for _, v := range s.list {
				s.items[v] = struct{}{}
			}
		}
		return true
	}

	n := len(s.items)
	s.items[v] = struct{}{}
	return len(s.items) > n
}

// Unique returns each value once, in the order of the first occurrences.
func Unique[T comparable](values []T) []T {
	once := make([]T, 0, len(values))
	if len(values) <= mapThreshold {
		for _, v := range values {
			if !slices.Contains(once, v) {
				once = append(once, v)
			}
		}
		return once
	}

	var seen set[T]
	seen.reset(len(values))
	for _, v := range values {
		if seen.add(v) {
			once = append(once, v)
		}
	}
	return once
}

// An addrSet holds the addresses and the hostnames of endpoints.
type addrSet struct {
	addrs set[netip.Addr]
	hosts set[string]
}

// reset empties the set for about n addresses.
func (s *addrSet) reset(n int) {
	s.addrs.reset(n)
	s.hosts.reset(0)
}

// add adds the address and the hostname of an endpoint, and reports whether neither was
// in the set.
func (s *addrSet) add(ep *cluster.Endpoint) bool {
	return s.addrs.add(ep.Addr) && (ep.Hostname == "" || s.hosts.add(ep.Hostname))
}

// mayOverlap reports whether packed endpoints may have an address or hostname of the
// set. For few addresses it searches their bytes.
func (s *addrSet) mayOverlap(packed string) bool {
	if s.addrs.items != nil || len(s.addrs.list) > 4 {
		return true
	}
	for _, ip := range s.addrs.list {
		var room [16]byte
		if strings.Contains(packed, string(appendAddr(room[:0], ip))) {
			return true
		}
	}
	for _, name := range s.hosts.list {
		if strings.Contains(packed, name) {
			return true
		}
	}
	return false
}
