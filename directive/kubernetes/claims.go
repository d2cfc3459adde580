package kubernetes

import "net/netip"

// A claimConflict is an address that endpoints of Services of several namespaces share, at
// least one of them without a targetRef that identifies it.
type claimConflict struct {
	addr         netip.Addr
	claim, other *serviceKey
}

// conflicts returns the number of conflicting addresses, and one of them.
func (ix *Index) conflicts() (count int, first claimConflict) {
	for _, all := range [2]netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		var last claimConflict
		for c := ix.claims.within(all); c.advance(); c.skipNamespace(&ix.claims) {
			switch ip := c.addr(); {
			case ip != last.addr:
				last = claimConflict{ip, c.service, ix.reverse.otherNamespace(ip, c.service)}
			case last.other == nil:
				last.other = c.service
			default:
				continue // it has been counted
			}
			if last.other != nil {
				if count++; count == 1 {
					first = last
				}
			}
		}
	}
	return count, first
}

// otherNamespace returns a Service that has the address and is not in the namespace of
// service; nil if there is none.
func (x *reverseIndex) otherNamespace(ip netip.Addr, service *serviceKey) *serviceKey {
	for c := x.within(netip.PrefixFrom(ip, ip.BitLen())); c.advance(); c.skipNamespace(x) {
		if c.service.namespace != service.namespace {
			return c.service
		}
	}
	return nil
}
