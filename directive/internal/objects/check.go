package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/health"
)

// checkTimeout is how long a check waits for a list of the objects.
const checkTimeout = 10 * time.Second

// Check reads the objects once, and returns what is wrong with each. They are those of the cluster at a
// location or, if that is the zero value, those of the directive's own folder; without one it reads
// nothing. own are the names of the Corefile, nil without any.
func (s Settings) Check(ctx context.Context, at cluster.Options, table, own Table) []error {
	if at == (cluster.Options{}) && s.API.Manifests == "" {
		return nil
	}
	if at != (cluster.Options{}) {
		at.ConfigMapLabels, at.DNSEndpoints, at.Namespaces = s.API.ConfigMapLabels, s.API.DNSEndpoints, s.API.Namespaces
		s.API = at
	}

	b := &config.Block{Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry), Shared: new(config.Shared)}
	x := New(s, table, b)
	if own != nil {
		x.corefile.tables = []Table{own}
	}
	x.run(b)
	defer x.Stop()

	if err := AwaitList(ctx, x.synced, x.board); err != nil {
		return []error{s.Use.Errorf("%w", err)}
	}
	return x.Errors()
}

// AwaitList waits until synced is closed, and returns why the objects of a check cannot be read; nil if they
// have been. board has the conditions of their source.
func AwaitList(ctx context.Context, synced <-chan struct{}, board *health.Board) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	select {
	case <-synced:
		return nil
	case <-ctx.Done():
	}
	err := fmt.Errorf("the objects cannot be read: no complete list within %v", checkTimeout)
	for _, c := range board.Conditions() {
		err = errors.Join(err, errors.New(c.Text))
	}
	return err
}

// Errors returns what is wrong with each object, and which namespaces have ignored ones.
func (x *Objects) Errors() (errs []error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range slices.SortedFunc(maps.Keys(x.faults.all), (*Object).compareKey) {
		errs = append(errs, x.settings.Use.Errorf("%s: %s", o, x.faults.all[o].told))
	}
	for _, namespace := range slices.Sorted(maps.Keys(x.faults.crowded)) {
		errs = append(errs, x.settings.Use.Errorf("namespace %s has more than %d objects, and the youngest are ignored (max_%s)",
			namespace, considered*x.settings.Most, x.settings.Noun))
	}
	return errs
}
