package kubernetes

import (
	"cmp"
	"context"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
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

	var best *index.Entry
	for _, e := range ix.Entries(false) {
		if e.Visible() && !e.Headless && !e.ExternalName && e.Records != "" && (best == nil || better(e, best)) {
			best = e
		}
	}

	if best == nil || h.primary == "" {
		return nil
	}

	name := (wire.Name(best.Key.Labels+"\x03svc") + h.primary).String()
	for _, p := range best.PortList() {
		if p.Name != "" {
			return []string{name, "_" + p.Name + "._" + p.Protocol + "." + name + " SRV"}
		}
	}
	return []string{name}
}

// better prefers Services with many named ports. The order is total, so that the choice
// is always the same.
func better(a, b *index.Entry) bool {
	named := func(e *index.Entry) int {
		return len(slices.DeleteFunc(slices.Clone(e.PortList()), func(p cluster.Port) bool { return p.Name == "" }))
	}
	return cmp.Or(named(b)-named(a), cmp.Compare(a.Key.Namespace.Name, b.Key.Namespace.Name),
		cmp.Compare(a.Key.Labels, b.Key.Labels)) < 0
}
