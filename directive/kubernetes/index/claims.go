package index

import "net/netip"

// A ClaimConflict is an address that endpoints of Services of several namespaces share, at
// least one of them without a targetRef that identifies it.
type ClaimConflict struct {
	Addr         netip.Addr
	Claim, Other *ServiceKey
}

// Conflicts returns the number of conflicting addresses, and one of them.
func (ix *Index) Conflicts() (count int, first ClaimConflict) {
	for _, zero := range [2]netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		var last ClaimConflict
		for c := ix.claims.Within(netip.PrefixFrom(zero, 0)); c.Advance(); c.SkipNamespace(&ix.claims) {
			switch ip := c.Addr(); {
			case ip != last.Addr:
				last = ClaimConflict{ip, c.Service, ix.reverse.otherNamespace(ip, c.Service)}
			case last.Other == nil:
				last.Other = c.Service
			default:
				continue // it has been counted
			}

			if last.Other != nil {
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
func (x *ReverseIndex) otherNamespace(ip netip.Addr, service *ServiceKey) *ServiceKey {
	for c := x.Within(netip.PrefixFrom(ip, ip.BitLen())); c.Advance(); c.SkipNamespace(x) {
		if c.Service.Namespace != service.Namespace {
			return c.Service
		}
	}
	return nil
}
