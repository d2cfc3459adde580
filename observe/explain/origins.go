package explain

import (
	"context"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/dns"
)

// ReadOrigins sets the fields of objects that follow the name, from their source. read may be nil
// before the source runs. It is for handlers that keep no metadata: see ObjectReader.
func ReadOrigins(ctx context.Context, read cluster.ReadOrigin, objects []*dns.Object) {
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
