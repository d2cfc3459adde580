package kubernetes

import (
	"iter"
	"net/netip"
	"slices"
)

// externalEntry returns the entry that k8s_external answers from: the Service with the
// addresses by which clients outside the cluster reach it, or with the host name of its
// load balancer as the target of a CNAME. With the option headless, a headless Service
// without such addresses has its endpoints. It returns nil if the Service has none of these.
func (e *entry) externalEntry(set externalSettings) *entry {
	out := &entry{key: e.key, serviceSpec: e.serviceSpec}
	switch x := e.external; {
	case x != nil && len(x.IPs) > 0:
		// A CNAME excludes other records (RFC 2181 §10.1), so host names count only without
		// addresses.
		out.headless, out.externalName, out.exists = false, false, true
		out.setAddresses(x.IPs, set.ttl)
	case x != nil:
		out.externalName, out.records, out.aEnd = true, cname(x.Hosts[0], set.ttl), 0
		out.exists = out.records != ""
	case set.headless && e.headless && e.hasReadyEndpoints():
		out.exists, out.answerParts, out.table = true, e.answerParts, e.table
		out.setAddresses(slices.Collect(e.addresses(true, true)), set.ttl)
	}
	if !out.exists {
		return nil
	}
	return out
}

// externalAddresses returns the addresses whose reverse names k8s_external answers with
// the Service.
func (e *entry) externalAddresses() iter.Seq[netip.Addr] {
	if e == nil || e.k8sExternal == nil || e.external == nil {
		return slices.Values[[]netip.Addr](nil)
	}
	return slices.Values(e.external.IPs)
}

// visibleExternal returns the entry of k8s_external if clients may see it.
func (e *entry) visibleExternal() *entry {
	if e == nil || !e.k8sExternal.visible() {
		return nil
	}
	return e.k8sExternal
}
