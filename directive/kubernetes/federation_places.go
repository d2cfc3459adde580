package kubernetes

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
)

// places are where a cluster's Nodes are. They are the Sink of a cluster.Source
// that is asked for Nodes alone: kubernetes is ready without them.
type nodeLocations struct {
	synced chan struct{} // closed when there has been a list
	first  atomic.Pointer[string]

	mu     sync.Mutex
	listed bool
	nodes  map[string]string // by name: labels "zone.region", of those that tell both
}

func newPlaces() *nodeLocations {
	return &nodeLocations{synced: make(chan struct{}), nodes: map[string]string{}}
}

var (
	errNoNodes  = errors.New("federation: the zone and the region of this cluster are not known: there is no list of nodes yet (the service account needs list and watch on nodes)")
	errNoLabels = errors.New("federation: the zone and the region of this cluster are not known: no Node has both of the labels topology.kubernetes.io/zone and topology.kubernetes.io/region, or of failure-domain.beta.kubernetes.io/zone and …/region")
)

// first gives the labels "zone.region" of the first Node that tells both, in wire
// form without a root label. The error is for the log.
func (p *nodeLocations) location() (labels string, err error) {
	here := p.first.Load()
	switch {
	case here == nil:
		return "", errNoNodes
	case *here == "":
		return "", errNoLabels
	}
	return *here, nil
}

// Put adds or replaces Nodes.
func (p *nodeLocations) Put(_ cluster.Kind, objects ...cluster.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := false
	for _, o := range objects {
		n := o.(*cluster.Node)
		labels := ""
		if isDotted(n.Zone) && isDotted(n.Region) {
			labels = string(appendDotted(appendDotted(nil, n.Zone), n.Region))
		}
		if p.nodes[n.Name] == labels {
			continue // as after most lists, and with every sign of life
		}
		changed = true
		if labels == "" {
			delete(p.nodes, n.Name)
		} else {
			p.nodes[n.Name] = labels
		}
	}
	if changed {
		p.publish()
	}
}

// Delete removes one.
func (p *nodeLocations) Delete(_ cluster.Kind, key cluster.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.nodes[key.Name]; ok {
		delete(p.nodes, key.Name)
		p.publish()
	}
}

// Listed deletes those that were not in a list.
func (p *nodeLocations) Listed(_ cluster.Kind, has func(cluster.Key) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.nodes {
		if !has(cluster.Key{Name: name}) {
			delete(p.nodes, name)
		}
	}
	first := !p.listed
	p.listed = true
	p.publish()
	if first {
		close(p.synced)
	}
}

// show lets readers see the first Node, from the first list on: before that the
// first of some may not be the first of all.
func (p *nodeLocations) publish() {
	if !p.listed {
		return
	}
	least, labels := "", ""
	for name, of := range p.nodes {
		if labels == "" || name < least {
			least, labels = name, of
		}
	}
	p.first.Store(&labels)
}

// following is a watch of Nodes: it outlives reloads that do not change whose.
type nodeWatch struct {
	*nodeLocations
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// Stop ends the watch.
func (f *nodeWatch) Stop() {
	f.cancel()
	f.done.Wait()
}

type nodeWatchKey struct{ cluster.Options }

// start watches the Nodes of kubernetes' cluster, unless the old plan does
// already. A reload waits for them as long as for the rest, and goes on without.
func (f *Federation) start(s *config.Start, b *config.Block) error {
	o := f.kubernetes.options
	opts := cluster.Options{
		Manifests: o.Manifests, Endpoint: o.Endpoint, Cert: o.Cert, Key: o.Key, CA: o.CA,
		Kubeconfig: o.Kubeconfig, KubeconfigContext: o.KubeconfigContext,
		QPS: o.QPS, Burst: o.Burst, MaxInflight: o.MaxInflight,
		Nodes: true,
	}
	made := false
	w, err := config.Keep(s, nodeWatchKey{opts}, func() (*nodeWatch, error) {
		made = true
		ctx, cancel := context.WithCancel(context.Background())
		w := &nodeWatch{nodeLocations: newPlaces(), cancel: cancel}
		source := cluster.Open(opts, b.Log, b.Metrics)
		w.done.Go(func() { source.Run(ctx, w.nodeLocations) })
		return w, nil
	})
	if err != nil {
		return err
	}
	f.nodes = w.nodeLocations
	if !s.Reload || !made {
		return nil
	}
	select {
	case <-w.synced:
	case <-time.After(o.startupTimeout):
	case <-s.Context.Done():
		return s.Context.Err()
	}
	return nil
}
