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
		kind, _ := cluster.KindNamed(o.Kind)
		origin, err := read(ctx, kind, cluster.Key{Namespace: o.Namespace, Name: o.Name})
		o.ResourceVersion, o.Created, o.File = origin.ResourceVersion, origin.Created, origin.File
		if err != nil {
			o.Unknown = err.Error()
		}
	}
}
