// Package index holds the names of a cluster in memory: an [Entry] for each Service, with its
// endpoints and their records ready to be copied, and the indexes of addresses for reverse
// names. The directives of package kubernetes answer from it. It knows no query.
//
// An [Index] is the [cluster.Sink] of a source of objects, which is its only writer. Readers
// take no lock: what they find is immutable, and a change replaces it.
//
// A watch event is applied in five steps. [Index.Put] adds an object to the pending change of
// its Service (change.go). A flush merges the changed slices with the parts of the old entry
// (change.go). It makes a new entry from the endpoints that differ (difference.go), or from
// all slices (build.go, merge.go). It replaces the old entry in the table (publish.go). At the end
// it applies the addresses that differ to the [ReverseIndex] (reverse.go).
package index

import (
	"cmp"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// An Index holds the names of a cluster. It is independent of zones: names in it end with their
// namespace.
type Index struct {
	cluster.Traced
	settings Settings
	log      *slog.Logger

	services        zone.Table[Entry]     // by the labels "service.namespace"
	imports         zone.Table[Entry]     // ServiceImports, by the same labels
	namespaces      zone.Table[Namespace] // by the label of the namespace; exposed or not
	pods            zone.Table[podCount]
	reverse         ReverseIndex         // the Services' own addresses
	claims          ReverseIndex         // addresses of endpoints that no targetRef identifies
	clients         zone.Table[addrPods] // pods by address, with Settings.PodsByAddr
	externalReverse ReverseIndex         // addresses that k8s_external answers for
	latency         *latency             // nil observes nothing
	generations     *generation.Cells    // nil counts nothing

	listedKinds  atomic.Uint32 // a bit for each kind that is listed, in a snapshot or not watched
	syncedKinds  atomic.Uint32 // a bit for each kind that is listed or not watched
	loaded       bool          // from a snapshot; set before the source runs
	synced       chan struct{} // closed when all kinds are listed
	serial       atomic.Uint32 // sum of the hashes of all entries and pods in exposed namespaces
	importSerial atomic.Uint32
	objects      [cluster.Kinds]atomic.Int64 // the number of objects in the index
	podChanges   atomic.Uint64

	mu             sync.Mutex // held by the writer, which alone uses the following fields
	portSets       portSets
	sliceOwners    [cluster.Kinds]map[cluster.Key]*ServiceKey // of slices whose names do not derive from the Service's
	podObjects     map[cluster.Key]*cluster.Pod
	changes        serviceChanges          // since the last flush
	toggled        map[*Namespace]struct{} // namespaces exposed or hidden since the last flush
	reverseChange  reverseChange           // pending, of reverse
	claimChange    reverseChange           // pending, of claims
	externalChange reverseChange           // pending, of externalReverse
	reverseLen     int                     // references added to reverse and claims so far

	// Buffers that are reused for each Service.
	buf         []byte
	pending     []pendingPart
	partChanges []partChange
	diff        endpointDiff
	addrSet     addrSet

	undos []*Undo // record changes; empty unless other servers copy zones
}

// A podCount is the number of pods in a namespace that have an address.
type podCount struct{ pods int }

// New returns an empty index, which is synced once all of kinds have been listed.
func New(set Settings, kinds []cluster.Kind, log *slog.Logger) *Index {
	set.TableFrom = cmp.Or(set.TableFrom, largeService)
	ix := &Index{
		settings: set, log: log, synced: make(chan struct{}),
		podObjects: map[cluster.Key]*cluster.Pod{}, toggled: map[*Namespace]struct{}{},
	}

	ix.syncedKinds.Store(allKinds)
	for _, k := range kinds {
		ix.syncedKinds.And(^uint32(1 << k))
	}
	ix.listedKinds.Store(ix.syncedKinds.Load())
	return ix
}

const allKinds = 1<<cluster.Kinds - 1

// CountChanges makes the writer count its changes, so that answers can be repeated until what
// they were made from changes. The keys are the labels of a Service or ServiceImport for its own name
// and its ports, the EndpointsKey for all other names below, the label of a namespace that is exposed
// or hidden, the PodKey of a pod, and "" for a kind that is listed for the first time. Reverse names and
// the serials are not counted. CountChanges must be called before the source runs.
func (ix *Index) CountChanges(g *generation.Cells) { ix.generations = g }

// Ready reports whether every kind has been listed once or is in the snapshot. The last
// known state is served while the source is away.
func (ix *Index) Ready() bool { return ix.listedKinds.Load() == allKinds }

// Synced reports whether every kind has been listed once.
func (ix *Index) Synced() bool { return ix.syncedKinds.Load() == allKinds }

// Loaded reports whether the index began with a snapshot.
func (ix *Index) Loaded() bool { return ix.loaded }

// SyncedChannel returns a channel that is closed once every kind has been listed.
func (ix *Index) SyncedChannel() <-chan struct{} { return ix.synced }

// Serial returns a sum of the hashes of all Services and pods in exposed namespaces, or of all
// ServiceImports. It changes with the records.
func (ix *Index) Serial(imported bool) uint32 {
	if imported {
		return ix.importSerial.Load()
	}
	return ix.serial.Load()
}

// Hash returns a hash of all records, which does not depend on the order of events.
func (ix *Index) Hash() uint32 { return ix.serial.Load() + ix.importSerial.Load() }

// PodChanges returns the number of changes of pods. Most concern no record: they are not in Hash.
func (ix *Index) PodChanges() uint64 { return ix.podChanges.Load() }

// HasSynced reports whether a kind has been listed once, or is not watched.
func (ix *Index) HasSynced(kind cluster.Kind) bool { return ix.syncedKinds.Load()>>kind&1 == 1 }

// Count returns the number of objects of a kind.
func (ix *Index) Count(kind cluster.Kind) int64 { return ix.objects[kind].Load() }

// Unlisted returns the names of the kinds that have not been listed.
func (ix *Index) Unlisted() string {
	var names []string
	for kind := range cluster.Kinds {
		if !ix.HasSynced(kind) {
			names = append(names, kind.String())
		}
	}
	return strings.Join(names, ", ")
}

// HaveListed reports whether two kinds have been listed. Before that, objects of the
// kind that are not in the index may exist.
func (ix *Index) HaveListed(a, b cluster.Kind) bool {
	want := uint32(1)<<a | 1<<b
	return ix.listedKinds.Load()&want == want
}

// Put implements [cluster.Sink]. It adds or replaces objects.
func (ix *Index) Put(kind cluster.Kind, objects ...cluster.Object) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for _, o := range objects {
		ix.put(kind, o)
	}
	ix.flush(kind)
}

// Delete implements [cluster.Sink]. It removes an object.
func (ix *Index) Delete(kind cluster.Kind, key cluster.Key) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.delete(kind, key)
	ix.flush(kind)
}

func (ix *Index) table(imported bool) *zone.Table[Entry] {
	if imported {
		return &ix.imports
	}
	return &ix.services
}

func (ix *Index) put(kind cluster.Kind, o cluster.Object) {
	switch o := o.(type) {
	case *cluster.Namespace:
		if ns := ix.ensureNamespace(o.Name); ns != nil {
			ix.setExposed(ns, true)
		}
	case *cluster.Service:
		ix.putService(kind, o)
	case *cluster.Slice:
		ix.putSlice(kind, o)
	case *cluster.Pod:
		ix.putPod(o)
	}
}

func (ix *Index) delete(kind cluster.Kind, key cluster.Key) {
	switch kind {
	case cluster.Namespaces:
		if ns := ix.namespaces.Get([]byte(Label(key.Name))); ns != nil {
			ix.setExposed(ns, false)
			ix.removeIfEmpty(ns)
		}
	case cluster.Services, cluster.Imports:
		ix.deleteService(kind, key)
	case cluster.Slices, cluster.ImportSlices:
		ix.deleteSlice(kind, key)
	case cluster.Pods:
		ix.deletePod(key)
	}
}

// ensureNamespace returns the namespace of that name, and creates it if it does not exist.
// It returns nil if the name is not a DNS label.
func (ix *Index) ensureNamespace(name string) *Namespace {
	key := Label(name)
	if key == "" {
		ix.log.Warn("kubernetes: Ignored a Namespace whose name is not a DNS label", "namespace", name)
		return nil
	}
	ns := ix.namespaces.Get([]byte(key))
	if ns == nil {
		ns = &Namespace{Name: name}
		ix.namespaces.Set(key, ns)
	}
	return ns
}

// setExposed exposes or hides the names of a namespace.
func (ix *Index) setExposed(ns *Namespace, exposed bool) {
	if ns.Exposed() == exposed {
		return
	}
	label := Label(ns.Name)
	ix.generations.Begin(label)
	ns.exposed.Store(exposed)
	ix.generations.End(label)

	ix.toggled[ns] = struct{}{}
	for _, u := range ix.undos {
		u.addNamespace(ns, !exposed)
	}

	sign := uint32(1)
	if !exposed {
		sign = ^uint32(0) // -1: the serials are sums
	}
	ix.objects[cluster.Namespaces].Add(int64(int32(sign)))
	ix.serial.Add(sign * ns.hash)
	ix.importSerial.Add(sign * ns.importHash)
}

// addHash adds to the hash of a namespace's Services and pods, or of its imports, and
// to the serial if the namespace is exposed.
func (ix *Index) addHash(ns *Namespace, imported bool, by uint32) {
	sum, serial := &ns.hash, &ix.serial
	if imported {
		sum, serial = &ns.importHash, &ix.importSerial
	}
	*sum += by
	if ns.exposed.Load() {
		serial.Add(by)
	}
}

// removeIfEmpty removes a namespace that is not exposed and has no objects.
func (ix *Index) removeIfEmpty(ns *Namespace) {
	if ns.objects == 0 && !ns.exposed.Load() {
		ix.namespaces.Delete(Label(ns.Name))
	}
}

// Label returns a name as one label in wire form; "" if it cannot be one.
func Label(name string) string {
	if !isLabel(name) {
		return ""
	}
	return string([]byte{byte(len(name))}) + strings.ToLower(name)
}

func isLabel(name string) bool { return name != "" && len(name) <= wire.MaxLabel }
