package kubernetes

import (
	"iter"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/wire"
)

// ClusterZones returns the zones that have the names of Services, not the reverse zones.
func (h *Handler) ClusterZones() (zones []wire.Name) {
	for _, z := range h.zones {
		if !z.reverse {
			zones = append(zones, z.name)
		}
	}
	return zones
}

// ClusterOptions returns the options with which the handler's cluster is reached.
func (h *Handler) ClusterOptions() cluster.Options { return h.options.Options }

// HasNamespace reports whether names of a namespace are served. label is its name with the
// length before it.
func (h *Handler) HasNamespace(label []byte) bool {
	return h.index.Namespace(label).Exposed()
}

// RecordSource identifies the handler's records: those of the same cluster with the same TTL.
func (h *Handler) RecordSource() any {
	return struct {
		index *index.Index
		ttl   uint32
	}{h.index, h.ttl}
}

// ZoneRecords yields the records of one of the handler's zones below its own name, in wire
// form with names written out, each valid until yield returns. It yields none of a zone
// that is not the handler's. Entries are immutable, so it holds no lock while it makes
// their records.
func (h *Handler) ZoneRecords(origin wire.Name) iter.Seq[[]byte] {
	z := h.byName.Get(origin)
	if z == nil {
		return func(func([]byte) bool) {}
	}
	return func(yield func([]byte) bool) {
		g := newGenerator(h, z)
		h.index.Lock()
		records, end := g.newView()
		h.index.Unlock()
		defer end()
		records(yield)
	}
}
