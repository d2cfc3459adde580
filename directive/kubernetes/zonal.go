package kubernetes

import (
	"context"
	"sync/atomic"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/wire"
)

// A nodeZone is the topology zone of the node that the server runs on. It is the
// [cluster.Sink] of a source of that Node only. It survives reloads that do not change its
// options.
type nodeZone struct {
	node        string
	labels      atomic.Pointer[[]byte] // in wire form without a root label; nil until it is known
	synced      follow.Event           // closed after the first list
	follow.Task                        // without a goroutine with the option zone
}

func (z *nodeZone) set(zone string) {
	if zone == "" || !index.ValidLabels(zone) {
		z.labels.Store(nil)
		return
	}
	labels := index.AppendLabels(nil, zone)
	z.labels.Store(&labels)
}

// Put implements [cluster.Sink].
func (z *nodeZone) Put(_ cluster.Kind, objects ...cluster.Object) {
	for _, o := range objects {
		if n := o.(*cluster.Node); n.Name == z.node { // a folder delivers all
			z.set(n.OwnZone)
		}
	}
}

// Delete implements [cluster.Sink]. The last known zone stays: the server still runs there.
func (z *nodeZone) Delete(cluster.Kind, cluster.Key) {}

// Listed implements [cluster.Sink].
func (z *nodeZone) Listed(cluster.Kind, func(cluster.Key) bool) {
	if !z.synced.Happened() {
		close(z.synced)
	}
}

type nodeZoneKey struct {
	cluster.Options
	zone string
}

// startZone finds the zone of zonal prefer. A reload waits startup_timeout for the Node, and
// continues without it.
func (o *options) startZone(s *config.Start, b *config.Block, h *Handler) (err error) {
	if !o.preferZone {
		return nil
	}
	opts := o.nodesOf()
	if opts.NodeName = o.NodeName; o.zone != "" {
		opts = cluster.Options{}
	}
	h.near, err = config.Keep(s, nodeZoneKey{opts, o.zone}, func() (*nodeZone, error) {
		z := &nodeZone{node: opts.NodeName, synced: follow.NewEvent()}
		if o.zone != "" {
			z.set(o.zone)
			return z, nil
		}
		z.Go(func(ctx context.Context) { sources.Run(ctx, opts, z, b.Log, b.Metrics, b.Health(), b.Dial) })
		return z, s.Await(z, z.synced, o.startupTimeout, func() error { return nil })
	})
	return err
}

// nodesOf returns the options of a source of the cluster's Nodes.
func (o *options) nodesOf() cluster.Options {
	nodes := o.Location()
	nodes.QPS, nodes.Burst, nodes.MaxInflight, nodes.Nodes = o.QPS, o.Burst, o.MaxInflight, true
	return nodes
}

// nearby limits a selection of a headless Service's endpoints to those in the node's zone,
// if there are any, of the query's address family. It reports whether it has. Services that
// publish endpoints which are not ready are for members that look for each other: they need
// all.
func (s *serviceLookup) nearby(sel index.Selection) (near index.Selection, ok bool) {
	if s.near == nil || s.lookup.whole || !s.entry.Headless || s.entry.PublishNotReady || s.lookup.zone.multicluster {
		return sel, false
	}
	zone := s.near.labels.Load()
	if zone == nil {
		return sel, false
	}
	near = sel
	near.Zone = *zone
	c := s.entry.Endpoints(&near)
	oneFamily := s.q.Type == wire.TypeA || s.q.Type == wire.TypeAAAA
	if oneFamily {
		c.Family = s.q.Type
	}
	for c.Next(&near) {
		if !oneFamily || index.FamilyOf(c.Endpoint.Addr) == s.q.Type {
			return near, true
		}
	}
	return sel, false
}
