package kubernetes

import (
	"cmp"
	"context"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// Examples returns queries to try, as arguments of dig: a Service's name and one of its
// ports. It waits for the objects until ctx ends.
func (h *Handler) Examples(ctx context.Context) []string {
	select {
	case <-h.index.SyncedChannel():
	case <-ctx.Done():
		return nil
	}
	ix := h.index
	ix.Lock()
	defer ix.Unlock()
	var best *entry
	for _, e := range ix.Entries(false) {
		if e.visible() && !e.headless && !e.externalName && e.records != "" && (best == nil || better(e, best)) {
			best = e
		}
	}
	if best == nil || h.primary == "" {
		return nil
	}
	name := (wire.Name(best.key.labels+"\x03svc") + h.primary).String()
	for _, p := range best.portList() {
		if p.Name != "" {
			return []string{name, "_" + p.Name + "._" + p.Protocol + "." + name + " SRV"}
		}
	}
	return []string{name}
}

// better prefers Services with many named ports. The order is total, so that the choice
// is always the same.
func better(a, b *entry) bool {
	named := func(e *entry) int {
		return len(slices.DeleteFunc(slices.Clone(e.portList()), func(p cluster.Port) bool { return p.Name == "" }))
	}
	return cmp.Or(named(b)-named(a), cmp.Compare(a.key.namespace.name, b.key.namespace.name), cmp.Compare(a.key.labels, b.key.labels)) < 0
}
