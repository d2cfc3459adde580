package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/snapshot"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/watch"
)

// A watchedCluster is a watch and its index. It survives reloads that do not change its
// options.
type watchedCluster struct {
	*index.Index
	snapshotOf string // the options that a snapshot of the index has to be of
	stateName  string
	*follow.Task
}

// stateName returns the name of the state of an index. Two versions of the server must agree
// on it.
func stateName(options string, set index.Settings) string {
	x := set.External
	return fmt.Sprintf("kubernetes %s {ttl:%d ignoreEmpty:%t podsByAddr:%t k8sExternal:{enabled:%t headless:%t ttl:%d}}",
		options, set.TTL, set.IgnoreEmpty, set.PodsByAddr, x.Enabled, x.Headless, x.TTL)
}

// StateName implements config.State.
func (w *watchedCluster) StateName() string { return w.stateName }

// SaveState passes a snapshot to the process that replaces this one, so that it need
// not wait for the API server: objects that were received, or loaded from a snapshot.
func (w *watchedCluster) SaveState(to io.Writer) error {
	if !w.Ready() {
		return nil
	}
	return snapshot.Write(to, snapshot.Header{Written: time.Now(), Options: w.stateName}, w.Objects())
}

// start watches the cluster. It keeps the watch of the old plan if there is one. A reload
// waits for the objects and fails without them; a first start serves at once, from the
// snapshot if there is one.
func (o *options) start(s *config.Start, d corefile.Directive, b *config.Block, h *Handler) error {
	type key struct {
		cluster.Options
		index.Settings
		snapshot, snapshotOf string
	}

	set := index.Settings{TTL: uint32(o.ttl), IgnoreEmpty: o.ignoreEmpty, PodsByAddr: o.podsByAddr,
		External: o.k8sExternal}
	k := key{Options: o.Options, Settings: set}
	if o.snapshot != "" {
		k.snapshot, k.snapshotOf = b.Path(o.snapshot), o.snapshotOf(h.zoneNames())
	}

	r, err := config.Keep(s, k, func() (*watchedCluster, error) {
		empty := func() *index.Index {
			ix := index.New(set, o.Kinds(), b.Log)
			ix.CountChanges(b.Generations)
			return ix
		}
		r := &watchedCluster{Index: empty(), snapshotOf: k.snapshotOf}
		r.stateName = stateName(o.snapshotOf(""), set)
		if f := s.Data(r.stateName); f != nil {
			r.load(f, r.stateName, b.Log, empty)
			_ = f.Close()
		}

		if k.snapshot != "" && !s.Reload && !r.Loaded() {
			r.loadFile(k.snapshot, b, empty)
		}

		r.ObserveLatency(b.Metrics)
		r.Task = follow.Go(func(ctx context.Context) {
			sources.Run(ctx, o.Options, r.Index, b.Log, b.Metrics, b.Health(), b.Dial)
		})
		r.Task.Go(func(ctx context.Context) { o.logSync(ctx, b.Log, h.zoneNames(), r.Index) })
		return r, s.Await(r, r.SyncedChannel(), o.startupTimeout, func() error {
			return d.Errorf("waiting for objects: no list of %s within %v (startup_timeout)", r.Unlisted(),
				o.startupTimeout)
		})
	})
	if err != nil {
		return err
	}

	// Of the zones of this plan, which may have others than the one that began to watch.
	_, err = config.Keep(s, exportKey{r, h.zoneNames()}, func() (*follow.Task, error) {
		t := follow.Go(func(ctx context.Context) { r.watchClaims(ctx, b.Log, b.Metrics, h.zoneNames()) })
		t.Go(func(ctx context.Context) { r.exportState(ctx, b.Metrics, h.zoneNames(), o.Kinds()) })
		return t, nil
	})
	if err != nil {
		return err
	}

	h.index, h.health, h.local, h.generations = r.Index, b.Health(), b.Addresses(), b.Generations
	if k.snapshot != "" {
		if err := keepSnapshot(s, b, k.snapshot, r); err != nil {
			return d.Errorf("%w", err)
		}
	}
	return nil
}

// An exportKey identifies the metrics of a cluster with the names of zones.
type exportKey struct {
	of    *watchedCluster
	zones string
}

// loadFile loads the snapshot in a file.
func (w *watchedCluster) loadFile(path string, b *config.Block, empty func() *index.Index) {
	log := b.Log
	file, err := watch.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		log.Info("kubernetes: No snapshot to start from", "file", path)
		return
	}
	if err != nil {
		log.Warn("kubernetes: Snapshot rejected, starting without it", "file", path, "error", err)
		return
	}
	defer file.Close()

	// The objects in the index are the server's own data; the file is in memory beside them.
	claim := b.Memory.Claim(memory.Snapshot)
	defer claim.Release()
	if info, err := file.Stat(); err == nil {
		if err := claim.Grow(info.Size()); err != nil {
			log.Warn("kubernetes: Snapshot rejected, starting without it", "file", path, "error", err)
			return
		}
	}
	w.load(file, w.snapshotOf, log, empty)
}

// load loads a snapshot of these options into the index, which empty replaces after an
// error.
func (w *watchedCluster) load(file *os.File, options string, log *slog.Logger, empty func() *index.Index) {
	s, err := readSnapshot(file, options)
	if err == nil {
		if err = w.Load(s); err != nil {
			w.Index = empty()
		}
	}
	if err != nil {
		log.Warn("kubernetes: Snapshot rejected, starting without it", "file", file.Name(), "error", err)
		return
	}
	log.Warn("kubernetes: Answering from a snapshot until all objects are received", "file", file.Name(),
		"written", s.Written, "duration", time.Since(s.Written).Round(time.Second))
}

// exportState exports whether the index is synced or stale, its hash, and the numbers of its
// objects until ctx is done.
func (w *watchedCluster) exportState(ctx context.Context, reg *metrics.Registry, zones string, kinds []cluster.Kind) {
	// Directives with other clusters may have the same zones, in server blocks with other addresses.
	for _, kind := range kinds {
		defer reg.SharedGauge("seamark_kubernetes_synced",
			"1 once all objects of the kind have been received, 0 before that.", math.Min,
			func() float64 { return oneIf(w.HasSynced(kind)) }, "zones", zones, "resource", kind.String())()
		defer reg.SharedGauge("seamark_kubernetes_objects", "Objects in the index, by kind.", metrics.Sum,
			func() float64 { return float64(w.Count(kind)) }, "zones", zones, "resource", kind.String())()
	}
	defer reg.SharedGauge("seamark_kubernetes_stale",
		"1 while answers come from a snapshot because not all objects have been received.", math.Max,
		func() float64 { return oneIf(w.Loaded() && !w.Synced()) }, "zones", zones)()
	defer reg.SharedGauge("seamark_kubernetes_records_hash",
		"Hash of all records. Replicas with equal data have equal hashes.", metrics.Sum,
		func() float64 { return float64(w.Hash()) }, "zones", zones)()
	<-ctx.Done()
}

// oneIf returns the value of a gauge that is 1 on a condition and else 0.
func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

// logSync logs when all objects are listed, and once when they are late.
func (o *options) logSync(ctx context.Context, log *slog.Logger, zones string, ix *index.Index) {
	timeout := time.NewTimer(o.startupTimeout)
	defer timeout.Stop()
	for {
		select {
		case <-ix.SyncedChannel():
			log.Info("kubernetes: Received all objects", "zones", zones)
			return
		case <-timeout.C:
			message := "kubernetes: Objects not received yet, answering SERVFAIL for names that depend on them"
			if ix.Loaded() {
				message = "kubernetes: Objects not received yet, answering from the snapshot"
			}
			log.Warn(message, "zones", zones, "missing", ix.Unlisted())
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
	defer reg.SharedGauge("seamark_kubernetes_ptr_conflicts",
		"Addresses that endpoints of Services in several namespaces share, with at least one endpoint that no targetRef identifies.",
		math.Max, func() float64 { return float64(counted.Load()) }, "zones", zones)()

	tick := time.NewTicker(claimInterval)
	defer tick.Stop()
	var warned time.Time
	for serial := w.Serial(false); ; {
		n, c := w.Conflicts()
		if n > int(counted.Swap(int64(n))) && time.Since(warned) >= claimWarnings {
			warned = time.Now()
			claim, other := c.Claim.ObjectKey(), c.Other.ObjectKey()
			log.Warn("kubernetes: Endpoints of several namespaces share one address, restrict write access to EndpointSlices", "address", c.Addr,
				"namespace", claim.Namespace, "service", claim.Name, "other_namespace", other.Namespace,
				"other_service", other.Name, "count", n)
		}

		for now := serial; now == serial; now = w.Serial(false) { // it has changed if any record has
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}

		serial = w.Serial(false)
	}
}
