package kubernetes

import (
	"net/netip"
	"slices"
	"strings"
)

// An addrSet is a set of addresses and one of hostnames. It is reused.
type addrSet struct {
	addrList []netip.Addr
	hostList []string
	addrMap  map[netip.Addr]struct{} // in place of addrList for many addresses
	hostMap  map[string]struct{}
}

// mapThreshold is the number of addresses from which on a map is faster than a list.
const mapThreshold = 24

// reset empties the set for at most n addresses.
func (c *addrSet) reset(n int) {
	c.addrList, c.hostList, c.addrMap, c.hostMap = c.addrList[:0], c.hostList[:0], nil, nil
	if n > mapThreshold {
		c.addrMap, c.hostMap = make(map[netip.Addr]struct{}, n), map[string]struct{}{}
	} else if cap(c.addrList) < n {
		c.addrList = make([]netip.Addr, 0, mapThreshold)
	}
}

// addAddr adds an address and reports whether it was not in the set.
func (c *addrSet) addAddr(ip netip.Addr) bool {
	if c.addrMap == nil {
		if slices.Contains(c.addrList, ip) {
			return false
		}
		c.addrList = append(c.addrList, ip)
		return true
	}
	n := len(c.addrMap)
	c.addrMap[ip] = struct{}{}
	return len(c.addrMap) > n
}

// addHost adds a hostname and reports whether it was not in the set.
func (c *addrSet) addHost(name string) bool {
	if c.hostMap == nil {
		if slices.Contains(c.hostList, name) {
			return false
		}
		c.hostList = append(c.hostList, name)
		return true
	}
	n := len(c.hostMap)
	c.hostMap[name] = struct{}{}
	return len(c.hostMap) > n
}

func (c *addrSet) hasAddr(ip netip.Addr) bool {
	if c.addrMap == nil {
		return slices.Contains(c.addrList, ip)
	}
	_, ok := c.addrMap[ip]
	return ok
}

func (c *addrSet) hasHost(name string) bool {
	if c.hostMap == nil {
		return slices.Contains(c.hostList, name)
	}
	_, ok := c.hostMap[name]
	return ok
}

// unique returns each address once, in the order of the first occurrences.
func unique(ips []netip.Addr) []netip.Addr {
	var seen addrSet
	seen.reset(len(ips))
	once := make([]netip.Addr, 0, len(ips))
	for _, ip := range ips {
		if seen.addAddr(ip) {
			once = append(once, ip)
		}
	}
	return once
}

// mayOverlap reports whether packed endpoints may have an address or hostname of the
// set. For few addresses it searches their bytes.
func (c *addrSet) mayOverlap(packed string) bool {
	if c.addrMap != nil || len(c.addrList) > 4 {
		return true
	}
	for _, ip := range c.addrList {
		var room [16]byte
		if strings.Contains(packed, string(appendAddr(room[:0], ip))) {
			return true
		}
	}
	for _, name := range c.hostList {
		if strings.Contains(packed, name) {
			return true
		}
	}
	return false
}
