// Package sources runs the source of a cluster's objects that the options select: an API
// server or a folder of manifests. Directives and commands that need objects of a cluster
// call Run.
package sources

import (
	"context"
	"log/slog"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/cluster/manifests"
	"github.com/seamark/seamark/metrics"
)

// Run delivers the objects of the cluster that the options name to sink until ctx is
// done, and returns when all of its goroutines have ended. The options have passed
// Check. Errors are logged and the request is retried: a restart would not help. dial
// opens connections to the API server; if it is nil, they are TCP connections.
func Run(ctx context.Context, o cluster.Options, sink cluster.Sink, log *slog.Logger, reg *metrics.Registry, dial apiserver.Dial) {
	m := cluster.NewMonitor(o.Kinds(), log, reg)
	m.Run(ctx, func() {
		if o.Manifests != "" {
			manifests.Run(ctx, o, sink, m)
		} else {
			apiserver.Run(ctx, o, sink, m, dial)
		}
	})
}
