package kubernetes

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/sys/follow"
)

// nodeLocations are the zones and regions of a cluster's Nodes. They are the
// [cluster.Sink] of a source of Nodes only: kubernetes is ready without them. They survive
// reloads that do not change their options.
type nodeLocations struct {
	follow.Task
	synced chan struct{} // closed after the first list
	first  atomic.Pointer[string]

	mu     sync.Mutex
	listed bool
	nodes  map[string]string // by name: labels "zone.region", of Nodes that have both
}

func newNodeLocations() *nodeLocations {
	return &nodeLocations{synced: make(chan struct{}), nodes: map[string]string{}}
}

var (
	errNoNodes  = errors.New("federation: finding the zone and region of this cluster: nodes are not listed yet (allow the service account to list and watch nodes)")
	errNoLabels = errors.New("federation: finding the zone and region of this cluster: no Node has the labels topology.kubernetes.io/zone and topology.kubernetes.io/region, or failure-domain.beta.kubernetes.io/zone and failure-domain.beta.kubernetes.io/region")
)

// location returns the labels "zone.region" of the first Node that has both, in wire form
// without a root label.
func (l *nodeLocations) location() (labels string, err error) {
	here := l.first.Load()
	switch {
	case here == nil:
		return "", errNoNodes
	case *here == "":
		return "", errNoLabels
	}
	return *here, nil
}

// Put implements [cluster.Sink].
func (l *nodeLocations) Put(_ cluster.Kind, objects ...cluster.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := false
	for _, o := range objects {
		n := o.(*cluster.Node)
		labels := ""
		if index.ValidLabels(n.Zone) && index.ValidLabels(n.Region) {
			labels = string(index.AppendLabels(index.AppendLabels(nil, n.Zone), n.Region))
		}
		if l.nodes[n.Name] == labels {
			continue // as after most lists, and with every heartbeat
		}
		changed = true
		if labels == "" {
			delete(l.nodes, n.Name)
		} else {
			l.nodes[n.Name] = labels
		}
	}
	if changed {
		l.publish()
	}
}

// Delete implements [cluster.Sink].
func (l *nodeLocations) Delete(_ cluster.Kind, key cluster.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.nodes[key.Name]; ok {
		delete(l.nodes, key.Name)
		l.publish()
	}
}

// Listed implements [cluster.Sink].
func (l *nodeLocations) Listed(_ cluster.Kind, has func(cluster.Key) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.nodes {
		if !has(cluster.Key{Name: name}) {
			delete(l.nodes, name)
		}
	}
	first := !l.listed
	l.listed = true
	l.publish()
	if first {
		close(l.synced)
	}
}

// publish publishes the location of the first Node, once there has been a list.
func (l *nodeLocations) publish() {
	if !l.listed {
		return
	}
	least, labels := "", ""
	for name, location := range l.nodes {
		if labels == "" || name < least {
			least, labels = name, location
		}
	}
	l.first.Store(&labels)
}

// start watches the Nodes of kubernetes' cluster. It keeps the watch of the old plan if
// there is one. A reload waits startup_timeout for the Nodes, and continues without them.
func (f *Federation) start(s *config.Start, b *config.Block) (err error) {
	o := f.kubernetes.options
	opts := o.nodesOf()
	f.nodes, err = config.Keep(s, opts, func() (*nodeLocations, error) {
		l := newNodeLocations()
		l.Go(func(ctx context.Context) { sources.Run(ctx, opts, l, b.Log, b.Metrics, b.Health(), b.Dial) })
		return l, s.Await(l, l.synced, o.startupTimeout, func() error { return nil })
	})
	return err
}
