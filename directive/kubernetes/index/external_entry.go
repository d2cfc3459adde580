package index

import (
	"iter"
	"net/netip"
	"slices"
)

// externalEntry returns the entry that k8s_external answers from: the Service with the
// addresses by which clients outside the cluster reach it, or with the host name of its
// load balancer as the target of a CNAME. With the option headless, a headless Service
// without such addresses has its endpoints. It returns nil if the Service has none of these.
func (e *Entry) externalEntry(set ExternalSettings) *Entry {
	out := &Entry{Key: e.Key, Spec: e.Spec}
	switch x := e.External; {
	case x != nil && len(x.IPs) > 0:
		// A CNAME excludes other records (RFC 2181 §10.1), so host names count only without
		// addresses.
		out.Headless, out.ExternalName, out.exists = false, false, true
		out.setAddresses(x.IPs, set.TTL)
	case x != nil:
		out.ExternalName, out.Records, out.aEnd = true, cname(x.Hosts[0], set.TTL), 0
		out.exists = out.Records != ""
	case set.Headless && e.Headless && e.hasReadyEndpoints():
		out.exists, out.Parts, out.table = true, e.Parts, e.table
		out.setAddresses(slices.Collect(e.addresses(true, true)), set.TTL)
	}
	if !out.exists {
		return nil
	}
	return out
}

// externalAddresses returns the addresses whose reverse names k8s_external answers with
// the Service.
func (e *Entry) externalAddresses() iter.Seq[netip.Addr] {
	if e == nil || e.k8sExternal == nil || e.External == nil {
		return slices.Values[[]netip.Addr](nil)
	}
	return slices.Values(e.External.IPs)
}

// VisibleExternal returns the entry of k8s_external if clients may see it.
func (e *Entry) VisibleExternal() *Entry { return ExternalView.Visible(e) }
