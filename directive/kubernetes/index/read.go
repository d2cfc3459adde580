package index

import (
	"iter"
	"net/netip"
	"slices"
)

// Lock stops the changes of the index until Unlock, so that several reads are of one moment.
// One read needs no lock.
func (ix *Index) Lock() { ix.mu.Lock() }

// Unlock ends Lock.
func (ix *Index) Unlock() { ix.mu.Unlock() }

// Settings returns the options that the index was made with.
func (ix *Index) Settings() Settings { return ix.settings }

// Service returns the entry of the Service with the labels "service.namespace"; nil if there is
// none. It may be invisible.
func (ix *Index) Service(labels []byte) *Entry { return ix.services.Get(labels) }

// Entry is Service for a Service or a ServiceImport.
func (ix *Index) Entry(imported bool, labels []byte) *Entry { return ix.table(imported).Get(labels) }

// Entries returns the entries of all Services or ServiceImports, by their labels, in any order.
func (ix *Index) Entries(imported bool) iter.Seq2[string, *Entry] { return ix.table(imported).All() }

// Namespace returns the namespace with a label; nil if it has no object and no objects in it.
func (ix *Index) Namespace(label []byte) *Namespace { return ix.namespaces.Get(label) }

// Namespaces returns all namespaces by their labels, in any order.
func (ix *Index) Namespaces() iter.Seq2[string, *Namespace] { return ix.namespaces.All() }

// HasPod reports whether there is a pod with the address of a PodKey.
func (ix *Index) HasPod(key []byte) bool { return ix.pods.Get(key) != nil }

// PodKeys returns the PodKeys of all pods, in any order.
func (ix *Index) PodKeys() iter.Seq[string] {
	return func(yield func(string) bool) {
		for key := range ix.pods.All() {
			if !yield(key) {
				return
			}
		}
	}
}

// PodNames returns the names of the pods of a namespace that have an address: several in the
// host's network may. Only pods that are watched are known.
func (ix *Index) PodNames(namespace string, ip netip.Addr) (names []string) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for key, p := range ix.podObjects {
		if key.Namespace == namespace && slices.Contains(p.IPs, ip) {
			names = append(names, key.Name)
		}
	}
	return names
}

// Reverse returns the index of the Services' own addresses: ClusterIPs, and addresses of
// endpoints that a targetRef identifies.
func (ix *Index) Reverse() *ReverseIndex { return &ix.reverse }

// Claims returns the index of the addresses of endpoints that no targetRef identifies.
func (ix *Index) Claims() *ReverseIndex { return &ix.claims }

// ExternalReverse returns the index of the addresses that k8s_external answers for.
func (ix *Index) ExternalReverse() *ReverseIndex { return &ix.externalReverse }
