package index

import (
	"iter"
	"net/netip"
)

// A View is what a zone has of the entries of an index.
type View uint8

const (
	ServiceView  View = iota // kubernetes: Services
	ImportView               // its multi-cluster zones: ServiceImports
	ExternalView             // k8s_external: Services with addresses outside the cluster
)

// of returns the view's entry of a Service; nil if there is none.
func (v View) of(e *Entry) *Entry {
	if e != nil && v == ExternalView {
		return e.k8sExternal
	}
	return e
}

// Visible returns the view's entry of a Service if clients may see it, and nil otherwise.
func (v View) Visible(e *Entry) *Entry {
	if e = v.of(e); e.Visible() {
		return e
	}
	return nil
}

// VisibleEntries returns the entries of a view that clients may see, in any order.
func (ix *Index) VisibleEntries(v View) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, e := range ix.table(v == ImportView).All() {
			if e = v.Visible(e); e != nil && !yield(e) {
				return
			}
		}
	}
}

// ReverseOf returns the reverse indexes of a view.
func (ix *Index) ReverseOf(v View) []*ReverseIndex {
	if v == ExternalView {
		return []*ReverseIndex{&ix.externalReverse}
	}
	return []*ReverseIndex{&ix.reverse, &ix.claims}
}

// ServicesAt returns the Services that refer to an address in a view.
func (ix *Index) ServicesAt(v View, ip netip.Addr) iter.Seq[*ServiceKey] {
	return func(yield func(*ServiceKey) bool) {
		for _, x := range ix.ReverseOf(v) {
			for at := x.Within(netip.PrefixFrom(ip, ip.BitLen())); at.Advance(); {
				if !yield(at.Service) {
					return
				}
			}
		}
	}
}
