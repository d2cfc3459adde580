package kubernetes

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
)

// A watchedCluster is a watch and its index. It survives reloads that do not change its
// options.
type watchedCluster struct {
	*Index
	snapshotOf string // the options that a snapshot of the index has to be of
	cancel     context.CancelFunc
	tasks      sync.WaitGroup
}

// Stop ends the watch.
func (w *watchedCluster) Stop() {
	w.cancel()
	w.tasks.Wait()
}

// start watches the cluster. It keeps the watch of the old plan if there is one. A reload
// waits for the objects and fails without them; a first start serves at once, from the
// snapshot if there is one.
func (o *options) start(s *config.Start, d corefile.Directive, b *config.Block, h *Handler) error {
	type key struct {
		cluster.Options
		settings
		snapshot, snapshotOf string
	}
	set := settings{uint32(o.ttl), o.ignoreEmpty, o.podsByAddr, o.k8sExternal}
	k := key{Options: o.Options, settings: set}
	if o.snapshot != "" {
		k.snapshot, k.snapshotOf = b.Path(o.snapshot), o.snapshotOf(h.zoneNames())
	}
	r, err := config.Keep(s, k, func() (*watchedCluster, error) {
		ctx, cancel := context.WithCancel(context.Background())
		r := &watchedCluster{Index: NewIndex(set, o.Kinds(), b.Log), snapshotOf: k.snapshotOf, cancel: cancel}
		if k.snapshot != "" && !s.Reload {
			r.load(k.snapshot, b.Log, func() *Index { return NewIndex(set, o.Kinds(), b.Log) })
		}
		r.latency = newLatency(b.Metrics)
		r.tasks.Go(func() { sources.Run(ctx, o.Options, r.Index, b.Log, b.Metrics, b.Dial) })
		r.tasks.Go(func() { o.logSync(ctx, b.Log, h.zoneNames(), r.Index) })
		r.tasks.Go(func() { r.watchClaims(ctx, b.Log, b.Metrics, h.zoneNames()) })
		r.tasks.Go(func() { r.exportState(ctx, b.Metrics, h.zoneNames()) })
		return r, s.Await(r, r.synced, o.startupTimeout, func() error {
			return d.Errorf("waiting for objects: no list of %s within %v (startup_timeout)", r.unlisted(), o.startupTimeout)
		})
	})
	if err != nil {
		return err
	}
	h.index, h.local = r.Index, b.Addresses()
	if k.snapshot != "" {
		if err := keepSnapshot(s, b, k.snapshot, r); err != nil {
			return d.Errorf("%w", err)
		}
	}
	return nil
}

// load loads a snapshot into the index, which fresh replaces after an error.
func (w *watchedCluster) load(path string, log *slog.Logger, fresh func() *Index) {
	s, err := readSnapshot(path, w.snapshotOf)
	if err == nil {
		if err = w.Load(s); err != nil {
			w.Index = fresh()
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		log.Info("kubernetes: No snapshot to start from", "file", path)
	case err != nil:
		log.Warn("kubernetes: Snapshot rejected, starting without it", "file", path, "error", err)
	default:
		log.Warn("kubernetes: Answering from a snapshot until all objects are received", "file", path,
			"written", s.Written, "duration", time.Since(s.Written).Round(time.Second))
	}
}

// exportState exports whether the index is stale, and its hash, until ctx is done.
func (w *watchedCluster) exportState(ctx context.Context, reg *metrics.Registry, zones string) {
	defer reg.TemporaryGauge("seamark_kubernetes_stale", "1 while answers are from a snapshot, since not all objects have been received.", func() float64 {
		if w.loaded && !w.Synced() {
			return 1
		}
		return 0
	}, "zones", zones)()
	defer reg.TemporaryGauge("seamark_kubernetes_records_hash", "Hash of all records. Replicas with equal data have equal hashes.",
		func() float64 { return float64(w.hash()) }, "zones", zones)()
	<-ctx.Done()
}

// logSync logs when all objects are listed, and once when they are late.
func (o *options) logSync(ctx context.Context, log *slog.Logger, zones string, ix *Index) {
	timeout := time.NewTimer(o.startupTimeout)
	defer timeout.Stop()
	for {
		select {
		case <-ix.synced:
			log.Info("kubernetes: Received all objects", "zones", zones)
			return
		case <-timeout.C:
			message := "kubernetes: Objects not received yet, answering SERVFAIL for names that depend on them"
			if ix.loaded {
				message = "kubernetes: Objects not received yet, answering from the snapshot"
			}
			log.Warn(message, "zones", zones, "missing", ix.unlisted())
		case <-ctx.Done():
			return
		}
	}
}

const (
	claimInterval = 10 * time.Second // between two counts of conflicting claims
	claimWarnings = time.Minute      // between two log messages about them
)

// watchClaims counts conflicting claims to addresses, and logs one when there are more.
func (w *watchedCluster) watchClaims(ctx context.Context, log *slog.Logger, reg *metrics.Registry, zones string) {
	var counted atomic.Int64
	defer reg.TemporaryGauge("seamark_kubernetes_ptr_conflicts",
		"Addresses that endpoints of Services in several namespaces have, one of which no targetRef identifies.",
		func() float64 { return float64(counted.Load()) }, "zones", zones)()
	tick := time.NewTicker(claimInterval)
	defer tick.Stop()
	var warned time.Time
	for serial := w.serial.Load(); ; {
		n, c := w.conflicts()
		if n > int(counted.Swap(int64(n))) && time.Since(warned) >= claimWarnings {
			warned = time.Now()
			claim, other := c.claim.objectKey(), c.other.objectKey()
			log.Warn("kubernetes: Endpoints of several namespaces have one address, restrict who may write EndpointSlices", "address", c.addr,
				"namespace", claim.Namespace, "service", claim.Name, "other_namespace", other.Namespace, "other_service", other.Name, "count", n)
		}
		for now := serial; now == serial; now = w.serial.Load() { // it has changed if any record has
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		serial = w.serial.Load()
	}
}
