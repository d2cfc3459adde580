package kubernetes

import (
	"context"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/dns"
)

// ReadObjects implements explain.ObjectReader: the index does not keep the metadata.
func (h *Handler) ReadObjects(ctx context.Context, objects []*dns.Object) {
	read := h.index.Origins()
	for _, o := range objects {
		if read == nil {
			o.Unknown = "the source of the objects does not run yet"
			continue
		}
		origin, err := read(ctx, kindOf(o.Kind), cluster.Key{Namespace: o.Namespace, Name: o.Name})
		o.ResourceVersion, o.Created, o.File = origin.ResourceVersion, origin.Created, origin.File
		if err != nil {
			o.Unknown = err.Error()
		}
	}
}

// kindOf returns the first kind with that name in the API, which is the one of this cluster.
func kindOf(name string) (kind cluster.Kind) {
	for kind < cluster.Kinds-1 && kind.ObjectKind() != name {
		kind++
	}
	return kind
}
