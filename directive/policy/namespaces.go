package policy

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/zone"
)

// Namespaces are those of a cluster, each with the groups and the ClusterNetworkPolicies that select it by
// its labels. They are the Sink that receives both. Queries read them without a lock.
type namespaces struct {
	api       cluster.Options
	selectors []*cluster.Selector // of groups, by their index
	byName    zone.Table[matched] // changed with mu held
	report    *objects.Report     // about ClusterNetworkPolicies
	task      *follow.Task
	synced    follow.Event // closed when all kinds have been listed once

	unregister func() // the gauge

	mu       sync.Mutex
	listed   map[cluster.Kind]bool
	policies map[cluster.Key]*networkPolicy
	sorted   []*networkPolicy // those that decide about names, by precedence
}

// A matched namespace has the indices of the selectors that match it, in order, and the policies. It is
// immutable.
type matched struct {
	labels   *cluster.Labels
	groups   []int32
	policies []*networkPolicy
}

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
	var policies []*networkPolicy
	for _, o := range all {
		switch o := o.(type) {
		case *cluster.Namespace:
			n.putNamespace(o)
		case *cluster.NetworkPolicy:
			policies = append(policies, newNetworkPolicy(o))
		}
	}
	n.putPolicies(policies...)
}

func (n *namespaces) putNamespace(o *cluster.Namespace) {
	m := &matched{labels: o.Labels, policies: n.policiesOf(o.Labels)}
	for i, s := range n.selectors {
		if s.Matches(o.Labels) {
			m.groups = append(m.groups, int32(i))
		}
	}
	n.byName.Set(o.Name, m)
}

// Delete implements cluster.Sink.
func (n *namespaces) Delete(kind cluster.Kind, key cluster.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remove(kind, key)
}

func (n *namespaces) remove(kind cluster.Kind, keys ...cluster.Key) {
	if kind == cluster.NetworkPolicies {
		n.removePolicies(keys...)
		return
	}
	for _, key := range keys {
		n.byName.Delete(key.Name)
	}
}

// Listed implements cluster.Sink.
func (n *namespaces) Listed(kind cluster.Kind, has func(cluster.Key) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remove(kind, slices.DeleteFunc(n.keys(kind), has)...)
	n.listed[kind] = true
	if len(n.listed) == len(n.api.Kinds()) && !n.synced.Happened() {
		close(n.synced)
	}
}

// keys returns the keys of the objects of a kind. n.mu is held.
func (n *namespaces) keys(kind cluster.Kind) (all []cluster.Key) {
	if kind == cluster.NetworkPolicies {
		return slices.Collect(maps.Keys(n.policies))
	}
	for name := range n.byName.All() {
		all = append(all, cluster.Key{Name: name})
	}
	return all
}

// Missing implements cluster.Comparer.
func (n *namespaces) Missing(kind cluster.Kind, has func(cluster.Key) bool) (missing, all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range n.keys(kind) {
		if all++; !has(key) {
			missing++
		}
	}
	return missing, all
}

// run has the objects watched until Stop is called.
func (n *namespaces) run(b *config.Block) {
	n.task = follow.Go(func(ctx context.Context) { sources.Run(ctx, n.api, n, b.Log, b.Metrics, b.Health(), b.Dial) })
}

// Stop ends the watch.
func (n *namespaces) Stop() {
	n.task.Stop()
	n.report.Close()
	n.unregister()
}

// A namespacesKey identifies Namespaces that a reload keeps.
type namespacesKey struct {
	api       cluster.Options
	selectors string
}

func newNamespaces(b *config.Block, api cluster.Options, selectors []*cluster.Selector) *namespaces {
	n := &namespaces{
		api: api, selectors: selectors, synced: follow.NewEvent(), report: objects.NewReport("policy", "names", b),
		listed: map[cluster.Kind]bool{}, policies: map[cluster.Key]*networkPolicy{}, unregister: func() {},
	}
	if api.Published.Has(cluster.NetworkPolicies) {
		n.unregister = b.Metrics.SharedGauge("seamark_policy_network_policies_faulty",
			"ClusterNetworkPolicies with rules about names that do not decide.", metrics.Sum,
			func() float64 { return float64(n.report.Count()) })
	}
	return n
}

// startNamespaces has the Namespaces watched if groups or ClusterNetworkPolicies select by their labels, where
// the first directive kubernetes has its objects from.
func (p *Policy) startNamespaces(b *config.Block, d corefile.Directive) {
	if len(p.groups.labelled) == 0 && !p.readsPolicies {
		return
	}
	var selectors []*cluster.Selector
	var texts []string
	for _, g := range p.groups.labelled {
		selectors, texts = append(selectors, g.labels), append(texts, g.labelText)
	}

	b.OnStart(func(start *config.Start) error {
		api := p.clusters[0].ClusterOptions().Location()
		api.Published = cluster.SetOf(cluster.Namespaces)
		if p.readsPolicies {
			api.Published |= cluster.SetOf(cluster.NetworkPolicies)
		}
		kept, err := config.Keep(start, namespacesKey{api, strings.Join(texts, "\n")}, func() (*namespaces, error) {
			n := newNamespaces(b, api, selectors)
			if p.readsPolicies {
				n.report.SetRecorder(objects.NewRecorder(start, api, b))
			}
			n.run(b)
			return n, objects.Await(start, n, n.synced, d, "namespaces")
		})
		if err == nil { // before the first query, and before WaitUntilReady asks
			p.groups.namespaces.Store(kept)
		}
		return err
	})
}

// Ready reports whether the Namespaces and the objects have been read that decide about queries.
func (p *Policy) Ready() bool {
	n, lines := p.groups.namespaces.Load(), p.objects.Load()
	return (n == nil || n.synced.Happened()) && (lines == nil || lines.IsSynced())
}
