package policy

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/zone"
)

// Namespaces are those of a cluster, each with the groups that select it by its labels. They are the Sink
// that receives them. Queries read them without a lock.
type namespaces struct {
	selectors []*cluster.Selector // of groups, by their index
	byName    zone.Table[matched] // changed with mu held
	task      *follow.Task
	synced    chan struct{} // closed when the Namespaces have been listed once

	mu sync.Mutex
}

// A matched namespace has the indices of the selectors that match it, in order. It is immutable.
type matched struct{ groups []int32 }

var _ cluster.Comparer = (*namespaces)(nil)

// find returns what is known of a namespace; nil if it is unknown. It allocates nothing.
func (n *namespaces) find(name string) *matched {
	var room [64]byte
	return n.byName.Get(append(room[:0], name...))
}

// Put implements cluster.Sink.
func (n *namespaces) Put(_ cluster.Kind, all ...cluster.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range all {
		if ns, ok := o.(*cluster.Namespace); ok {
			m := new(matched)
			for i, s := range n.selectors {
				if s.Matches(ns.Labels) {
					m.groups = append(m.groups, int32(i))
				}
			}
			n.byName.Set(ns.Name, m)
		}
	}
}

// Delete implements cluster.Sink.
func (n *namespaces) Delete(_ cluster.Kind, key cluster.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byName.Delete(key.Name)
}

// Listed implements cluster.Sink.
func (n *namespaces) Listed(_ cluster.Kind, has func(cluster.Key) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.byName.All() {
		if !has(cluster.Key{Name: name}) {
			n.byName.Delete(name)
		}
	}
	if !n.isSynced() {
		close(n.synced)
	}
}

// Missing implements cluster.Comparer.
func (n *namespaces) Missing(_ cluster.Kind, has func(cluster.Key) bool) (missing, all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.byName.All() {
		if all++; !has(cluster.Key{Name: name}) {
			missing++
		}
	}
	return missing, all
}

// isSynced reports whether the Namespaces have been listed once.
func (n *namespaces) isSynced() bool {
	select {
	case <-n.synced:
		return true
	default:
		return false
	}
}

// Stop ends the watch.
func (n *namespaces) Stop() { n.task.Stop() }

// A namespacesKey identifies Namespaces that a reload keeps.
type namespacesKey struct {
	api       cluster.Options
	selectors string
}

// startTimeout is how long a reload waits for the Namespaces.
const startTimeout = 5 * time.Second

// startNamespaces has the Namespaces watched if groups select by their labels, where the first directive
// kubernetes has its objects from.
func (p *Policy) startNamespaces(b *config.Block, d corefile.Directive) {
	if len(p.groups.labelled) == 0 {
		return
	}
	var selectors []*cluster.Selector
	var texts []string
	for _, g := range p.groups.labelled {
		selectors, texts = append(selectors, g.labels), append(texts, g.labelText)
	}

	var kept *namespaces
	b.OnStart(func(start *config.Start) (err error) {
		api := p.clusters[0].ClusterOptions().Location()
		api.Published = cluster.SetOf(cluster.Namespaces)
		kept, err = config.Keep(start, namespacesKey{api, strings.Join(texts, "\n")}, func() (*namespaces, error) {
			n := &namespaces{selectors: selectors, synced: make(chan struct{})}
			n.task = follow.Go(func(ctx context.Context) {
				sources.Run(ctx, api, n, b.Log, b.Metrics, b.Health(), b.Dial)
			})
			return n, start.Await(n, n.synced, startTimeout, func() error {
				return d.Errorf("waiting for the namespaces: no complete list from the API server within %v", startTimeout)
			})
		})
		return err
	})
	b.OnSwap(func() { p.groups.namespaces.Store(kept) })
}

// Ready reports whether the Namespaces and the objects have been read that decide about queries.
func (p *Policy) Ready() bool {
	n, lines := p.groups.namespaces.Load(), p.objects.Load()
	return (n == nil || n.isSynced()) && (lines == nil || lines.IsSynced())
}
