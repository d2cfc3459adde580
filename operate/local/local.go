// Package local runs the servers of a Corefile in this process, for the commands explain,
// records and shadow: they listen on no address.
package local

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/observe/inventory"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/transport"
)

// A Server runs the servers of a Corefile, which listen on no address: only Explain queries
// them. Their directives read files and API servers, and query upstreams, as in any server.
type Server struct {
	plan   *server.Plan
	blocks []*config.Block
}

// effects are the directives without which a server answers the same: they listen, send, or
// run commands.
var effects = []string{
	"health", "ready", "prometheus", "pprof", "admin", "kubedns_status", "skydns_metrics", "reload", "handover",
	"capture", "on", "lameduck", "log", "errors", "dnstap", "trace", "transfer", "loop", "multisocket", "shed", "debug",
	"nftset",
}

// observing are the effects that see the queries of their server block: a block that has only
// such directives fails its queries, an empty one refuses them.
var observing = []string{
	"prometheus", "admin", "skydns_metrics", "shed", "log", "errors", "dnstap", "trace", "transfer", "loop",
}

// An observer stands for the directives of observing.
type observer struct{}

// ObserveDNS implements [dns.Observer].
func (observer) ObserveDNS(*dns.Query) {}

// Start starts the servers of a Corefile, and waits until they are ready, until ctx ends.
// The directives of o that have effects are accepted and ignored, and the others write no files.
func Start(ctx context.Context, servers []corefile.Server, o server.Options) (*Server, error) {
	o.Directives, o.Metrics, o.Observes = slices.Clone(o.Directives), new(metrics.Registry), true
	s := new(Server)
	for i, d := range o.Directives {
		o.Directives[i].Setup = func(b *config.Block, uses []corefile.Directive) error {
			if !slices.Contains(s.blocks, b) {
				s.blocks = append(s.blocks, b)
			}
			if slices.Contains(effects, d.Name) {
				if slices.Contains(observing, d.Name) {
					b.Offer(observer{})
				}
				return nil
			}
			return d.Setup(b, uses)
		}
	}

	o.Open = func(_ context.Context, address netip.AddrPort, _ transport.Options) (server.Listener, error) {
		return server.Unconnected(address), nil
	}

	var err error
	if s.plan, err = server.NewPlan(servers, o); err != nil {
		return nil, err
	}
	if err := s.plan.Start(ctx, nil); err != nil {
		return nil, err
	}

	if err := s.plan.WaitUntilReady(ctx); err != nil {
		s.plan.Stop(ctx)
		return nil, fmt.Errorf("the server is not ready: %w", err)
	}
	return s, nil
}

// Explain explains a query to one of the servers.
func (s *Server) Explain(ctx context.Context, q explain.Query) (explain.Result, error) {
	return explain.Explain(ctx, s.plan.Ports(), q)
}

// Manifests returns the folders of which the servers read the objects of clusters.
func (s *Server) Manifests() (folders []string) {
	for _, b := range s.blocks {
		for _, h := range config.Find[interface{ ClusterOptions() cluster.Options }](b) {
			if folder := h.ClusterOptions().Manifests; folder != "" && !slices.Contains(folders, folder) {
				folders = append(folders, folder)
			}
		}
	}
	return folders
}

// Port returns the port of the server with a name or an address; the first one for "".
func (s *Server) Port(name string) (config.Port, error) { return explain.Choose(s.plan.Ports(), name) }

// Records returns the records that the servers serve.
func (s *Server) Records() iter.Seq[inventory.Record] {
	return inventory.Records(func(yield func(inventory.Named) bool) {
		for _, b := range s.blocks {
			for _, h := range inventory.ListersOf(b) {
				if !yield(h) {
					return
				}
			}
		}
	})
}

// Stop stops the servers.
func (s *Server) Stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.plan.Stop(ctx)
}
