package kube

import (
	"cmp"
	"context"
	"slices"

	"github.com/seamark/seamark/cluster"
)

// Examples gives questions worth a try, in dig's words: a Service's name and
// one of its ports. It waits for the data until ctx ends.
func (h *Handler) Examples(ctx context.Context) []string {
	select {
	case <-h.index.whole:
	case <-ctx.Done():
		return nil
	}
	ix := h.index
	ix.mu.Lock()
	defer ix.mu.Unlock()
	var best *cluster.Service
	for _, e := range ix.services.All() {
		if s := e.service; e.visible() && len(s.ClusterIPs) > 0 && (best == nil || better(s, best)) {
			best = s
		}
	}
	if best == nil || h.primary == "" {
		return nil
	}
	name := best.Name + "." + best.Namespace + ".svc." + h.primary.String()
	for _, p := range best.Ports {
		if p.Name != "" {
			return []string{name, "_" + p.Name + "._" + p.Protocol + "." + name + " SRV"}
		}
	}
	return []string{name}
}

// better prefers Services with names for their ports and with several ports,
// and makes the choice the same each time.
func better(a, b *cluster.Service) bool {
	named := func(s *cluster.Service) int {
		return len(slices.DeleteFunc(slices.Clone(s.Ports), func(p cluster.Port) bool { return p.Name == "" }))
	}
	return cmp.Or(named(b)-named(a), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
}
