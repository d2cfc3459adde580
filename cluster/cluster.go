// Package cluster delivers a Kubernetes cluster's Namespaces, Services,
// EndpointSlices, Pods and ServiceImports, or a single ConfigMap, or its Nodes, as
// a stream of slim objects, from an API server or from a folder of manifests.
//
// A handler opens a Source and runs it with a Sink. From an API server, one feed per
// resource (feed.go) keeps a client-go reflector running: it lists and watches
// through a transport that detects stalls (stall.go), and the codec (codec.go)
// slims each object as it is decoded (slim.go). The objects of a list go to the Sink
// in groups (listing.go), and the events after it one by one (store.go). In a
// folder, the files that have changed are decoded into items (manifests_parse.go),
// all items are assembled into the state of a cluster (manifests_assemble.go), and
// the difference to the last state goes to the Sink (manifests.go).
//
// Data flows one way: this package knows nothing of DNS. It is the only one that
// imports client-go.
package cluster

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/seamark/seamark/metrics"
)

// Options select a cluster, and the objects in it. They are comparable, so that two
// directives with equal options can share one Source.
type Options struct {
	// The source of the objects: a folder, an API server, a kubeconfig or, if all
	// are empty, the service account of the pod that the process runs in.
	Manifests         string // folder of YAML and JSON files
	Endpoint          string // URL of an API server; http:// is fine
	Cert, Key, CA     string // files for Endpoint
	Kubeconfig        string // file
	KubeconfigContext string // "" is the file's current context

	// The objects and fields to deliver.
	Namespaces      string // names, comma separated and sorted; "" is all
	NamespaceLabels string // label selector for namespaces
	Labels          string // label selector for Services, EndpointSlices and Pods
	NoEndpoints     bool   // no EndpointSlices
	Pods            bool   // deliver Pods
	Multicluster    bool   // deliver ServiceImports and their EndpointSlices
	PodNames        bool   // use the pod's name, if shorter than 64 bytes, for an endpoint without hostname
	Zones           bool   // keep each endpoint's topology zone
	// ConfigMap selects one ConfigMap, NAMESPACE/NAME, and nothing else.
	ConfigMap string
	Nodes     bool // deliver Nodes and nothing else
	External  bool // keep the external addresses of Services
	PodLabels bool // keep the labels of Pods

	// Limits of the requests to the API server, including watches; zero is no limit.
	// If only one of QPS and Burst is set, the other has client-go's default (5, 10).
	QPS         float32
	Burst       int
	MaxInflight int
}

// A Sink receives a source's objects. Its methods are called from several
// goroutines, one for each kind, and must not call the Source.
type Sink interface {
	// Put adds or replaces objects; the last of several with one key is valid. The
	// objects of a list arrive in several calls. After a list that broke off, the
	// next one may contain older versions if another API server sends it; the watch
	// that follows the list delivers the newer ones. The sink must not keep the
	// slice objects.
	Put(kind Kind, objects ...Object)
	// Delete removes an object, which may be unknown to the sink.
	Delete(Kind, Key)
	// Listed ends a list: its objects have been put, and all other objects of the
	// kind no longer exist. has reports whether a key is in the list; it must not be
	// called after Listed has returned. After a list that breaks off, another one
	// follows. The sink is synced once Listed has been called for every kind that
	// the options ask for.
	Listed(kind Kind, has func(Key) bool)
}

// A Programmed is a Sink that measures delays. Programmed is called after Put of an
// EndpointSlice, with the time since the change of an endpoint that caused it, by
// the API server's clock. It is not called for the objects of lists.
type Programmed interface {
	Programmed(service Key, took time.Duration)
}

// A Source delivers the objects of one cluster.
type Source struct {
	opts     Options
	timed    Programmed // nil if the sink does not implement it
	log      *slog.Logger
	metrics  *metrics.Registry
	heard    [Kinds]heard
	count    counters
	sweeper  *sweeper
	seed     maphash.Seed // of keys
	timeouts timeouts
}

// counters are the counters of each kind that the options ask for.
type counters struct {
	relists, errors, events [Kinds]*metrics.Counter
}

// Open returns a Source with options that Check has accepted. It reads nothing; the
// sink is not called before Run.
func Open(o Options, log *slog.Logger, reg *metrics.Registry) *Source {
	s := &Source{opts: o, log: log, metrics: reg, sweeper: newSweeper(), seed: maphash.MakeSeed(), timeouts: defaultTimeouts()}
	for _, kind := range o.Kinds() {
		name := kind.String()
		s.count.relists[kind] = reg.Counter("seamark_kubernetes_relists_total", "Lists received completely, including the first.", "resource", name)
		s.count.errors[kind] = reg.Counter("seamark_kubernetes_watch_errors_total", "Lists and watches that failed or ended early.", "resource", name)
		s.count.events[kind] = reg.Counter("seamark_kubernetes_events_total", "Changes of single objects received.", "resource", name)
	}
	return s
}

// Run delivers the cluster's objects to sink until ctx is done, and returns when all
// of its goroutines have ended. Errors are logged and the request is retried: a
// restart would not help.
func (s *Source) Run(ctx context.Context, sink Sink) {
	s.timed, _ = sink.(Programmed)
	const age = "seamark_kubernetes_data_age_seconds"
	for _, kind := range s.opts.Kinds() {
		s.heard[kind].now()
		drop := s.metrics.TemporaryGauge(age, "Time since a list, an event or a bookmark of the watch was received.", s.heard[kind].age, "resource", kind.String())
		defer drop()
	}
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	sweeping.Go(func() { s.sweeper.run(ctx) })
	if s.opts.Manifests != "" {
		s.runManifests(ctx, sink)
	} else {
		s.runLive(ctx, sink)
	}
}

// age returns how long ago the source last heard of the kind that it has not heard
// of for longest.
func (s *Source) age() time.Duration {
	age := time.Duration(0)
	for _, kind := range s.opts.Kinds() {
		age = max(age, s.heard[kind].since())
	}
	return age
}

// Kinds returns the kinds that o asks for, in the order of their constants.
func (o Options) Kinds() []Kind {
	if o.ConfigMap != "" {
		return []Kind{ConfigMaps}
	}
	if o.Nodes {
		return []Kind{Nodes}
	}
	ks := []Kind{Namespaces, Services}
	if !o.NoEndpoints {
		ks = append(ks, Slices)
	}
	if o.Pods {
		ks = append(ks, Pods)
	}
	if o.Multicluster {
		ks = append(ks, Imports)
		if !o.NoEndpoints {
			ks = append(ks, ImportSlices)
		}
	}
	return ks
}
