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
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/health"
)

// Run delivers the objects of the cluster that the options name to sink until ctx is
// done, and returns when all of its goroutines have ended. The options have passed
// Check. Errors are logged and the request is retried: a restart would not help. dial
// opens connections to the API server; if it is nil, they are TCP connections. What is wrong while
// errors last is on the board with the sink as its owner; it may be nil.
func Run(
	ctx context.Context, o cluster.Options, sink cluster.Sink,
	log *slog.Logger, reg *metrics.Registry, board *health.Board, dial apiserver.Dial,
) {
	m := cluster.NewMonitor(o.Kinds(), log, reg)
	m.Health = board
	defer board.Forget(sink)
	m.Run(ctx, func() {
		if o.Manifests != "" {
			manifests.Run(ctx, o, sink, m)
		} else {
			apiserver.Run(ctx, o, sink, m, dial)
		}
	})
}

// NewRecorder returns a Recorder of Events about the objects that Run delivers with these options;
// with a folder of manifests it writes nothing. The caller closes it.
func NewRecorder(
	o cluster.Options, log *slog.Logger, reg *metrics.Registry, dial apiserver.Dial,
) *apiserver.Recorder {
	return apiserver.NewRecorder(o, "seamark", log, reg, dial)
}

// LocationOptions returns the options of a directive that name files and folders of a
// cluster. They set fields of o. path returns the path of a file that the Corefile
// names.
func LocationOptions(o *cluster.Options, path func(string) string) []corefile.Option {
	return []corefile.Option{
		{Usage: "tls CERT KEY CA", Set: func(d corefile.Directive) error {
			o.Cert, o.Key, o.CA = path(d.Args[0].Text), path(d.Args[1].Text), path(d.Args[2].Text)
			return nil
		}},
		{Usage: "kubeconfig FILE [CONTEXT]", Set: func(d corefile.Directive) error {
			words := append(d.Words(), "")
			o.Kubeconfig, o.KubeconfigContext = path(words[0]), words[1]
			return nil
		}},
		{Usage: "manifests DIR", Set: func(d corefile.Directive) error {
			err := corefile.String(&o.Manifests)(d)
			o.Manifests = path(o.Manifests)
			return err
		}},
	}
}
