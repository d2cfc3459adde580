package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
)

// checkTimeout is how long a check waits for a list of the objects.
const checkTimeout = 10 * time.Second

// CheckObjects reads the objects once, and returns what is wrong with each. They are those of the
// cluster at a location or, if that is the zero value, those of the directive's own folder; without
// one it reads nothing.
func (h *Handler) CheckObjects(ctx context.Context, at cluster.Options) []error {
	if h.settings == nil || at == (cluster.Options{}) && h.settings.api.Manifests == "" {
		return nil
	}
	s := *h.settings
	if at != (cluster.Options{}) {
		at.ConfigMapLabels, at.DNSEndpoints, at.Namespaces = s.api.ConfigMapLabels, s.api.DNSEndpoints, s.api.Namespaces
		s.api = at
	}

	b := &config.Block{Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry), Shared: new(config.Shared)}
	x := newObjects(s, b)
	x.corefile = &h.own
	x.task = follow.Go(func(ctx context.Context) { sources.Run(ctx, s.api, x, b.Log, b.Metrics, x.board, nil) })
	x.task.Go(x.run)
	defer x.Stop()

	timeout := time.NewTimer(checkTimeout)
	defer timeout.Stop()
	select {
	case <-x.synced:
		return x.errors()
	case <-ctx.Done():
	case <-timeout.C:
	}
	err := fmt.Errorf("the objects cannot be read: no complete list within %v", checkTimeout)
	for _, c := range x.board.Conditions() {
		err = errors.Join(err, errors.New(c.Text))
	}
	return []error{s.use.Errorf("%w", err)}
}

// errors returns what is wrong with each object.
func (x *objects) errors() (errs []error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	byKey := func(a, b *object) int { return cmp.Compare(a.key, b.key) }
	for _, o := range slices.SortedFunc(maps.Keys(x.faults.all), byKey) {
		errs = append(errs, x.settings.use.Errorf("%s: %s", o, x.faults.all[o].told))
	}
	return errs
}
