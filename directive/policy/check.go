package policy

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/metrics"
)

// CheckObjects returns what is wrong with each ConfigMap, see [objects.Settings.Check], and with each
// ClusterNetworkPolicy.
func (p *Policy) CheckObjects(ctx context.Context, at cluster.Options) (errs []error) {
	if p.settings != nil {
		errs = p.settings.Check(ctx, at, &objectLines{settings: p.settings}, nil)
	}
	if p.readsPolicies {
		errs = append(errs, p.checkPolicies(ctx, at)...)
	}
	return errs
}

// checkPolicies reads the ClusterNetworkPolicies once, of the cluster at a location or, if that is the zero value,
// of the folder of kubernetes.
func (p *Policy) checkPolicies(ctx context.Context, at cluster.Options) (errs []error) {
	if at == (cluster.Options{}) {
		if at = p.clusters[0].ClusterOptions().Location(); at.Manifests == "" {
			return nil
		}
	}
	at.Published = cluster.SetOf(cluster.NetworkPolicies)
	b := &config.Block{Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry), Shared: new(config.Shared)}
	n := newNamespaces(b, at, nil)
	n.run(b)
	defer n.Stop()
	if err := objects.AwaitList(ctx, n.synced, b.Health()); err != nil {
		return []error{p.directive.Errorf("%w", err)}
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	byName := func(a, b *networkPolicy) int { return cmp.Compare(a.Name, b.Name) }
	for _, one := range slices.SortedFunc(maps.Values(n.policies), byName) {
		if one.reason != "" {
			id := objects.ID{Kind: cluster.NetworkPolicies, Key: one.Key()}
			errs = append(errs, p.directive.Errorf("%s: %s", id, one.reason))
		}
	}
	return errs
}
