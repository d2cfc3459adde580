package kubernetes

import (
	"cmp"
	"context"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// Examples gives questions worth a try, in dig's words: a Service's name and
// one of its ports. It waits for the data until ctx ends.
func (h *Handler) Examples(ctx context.Context) []string {
	select {
	case <-h.index.synced:
	case <-ctx.Done():
		return nil
	}
	ix := h.index
	ix.mu.Lock()
	defer ix.mu.Unlock()
	var best *entry
	for _, e := range ix.services.All() {
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

// better prefers Services with names for their ports and with several ports,
// and makes the choice the same each time.
func better(a, b *entry) bool {
	named := func(e *entry) int {
		return len(slices.DeleteFunc(slices.Clone(e.portList()), func(p cluster.Port) bool { return p.Name == "" }))
	}
	return cmp.Or(named(b)-named(a), cmp.Compare(a.key.namespace.name, b.key.namespace.name), cmp.Compare(a.key.labels, b.key.labels)) < 0
}
