// Package cluster delivers a Kubernetes cluster's Namespaces, Services,
// EndpointSlices, Pods and ServiceImports, or a single ConfigMap, or its Nodes, as
// a stream of slim objects. They come from an API server (live.go) or from a folder of
// manifests (manifests.go); whoever takes them cannot tell which.
//
// The handlers that need a cluster's state open a Source and give it a Sink.
// Data flows one way: this package knows nothing of DNS, and it is the only
// one that imports client-go.
package cluster

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/seamark/seamark/metrics"
)

// Options say which cluster, and which part of it. They are comparable, so
// that two directives with equal options can share one Source.
type Options struct {
	// Where the objects are: a folder, an explicit API server, a kubeconfig,
	// or (all empty) the service account of the pod we run in.
	Manifests         string // folder of YAML and JSON files
	Endpoint          string // URL of an API server; http:// is fine
	Cert, Key, CA     string // files for Endpoint
	Kubeconfig        string // file
	KubeconfigContext string // "" is the file's current context

	// What is wanted.
	Namespaces      string // names, comma separated and sorted; "" is all
	NamespaceLabels string // label selector for namespaces
	Labels          string // label selector for Services, EndpointSlices and Pods
	NoEndpoints     bool   // no EndpointSlices
	Pods            bool   // Pods too
	Multicluster    bool   // ServiceImports and their EndpointSlices too
	PodNames        bool   // an endpoint without hostname takes its pod's name, if that is shorter than 64 bytes
	Zones           bool   // keep each endpoint's topology zone
	// ConfigMap asks for this one object, NAMESPACE/NAME, and for nothing else.
	ConfigMap string
	Nodes     bool // asks for the Nodes, and for nothing else
	External  bool // keep the addresses by which Services are reached from outside
	PodLabels bool // keep the labels of Pods

	// Limits on our own requests, watches included; zero is none. With one of
	// QPS and Burst alone the other is client-go's default (5, 10).
	QPS         float32
	Burst       int
	MaxInflight int
}

// A Sink takes a source's objects. Calls come from several goroutines, one per
// kind; the sink serializes them itself, and must not call back.
type Sink interface {
	// Put adds or replaces objects; of two with one key the later one counts. The
	// objects of a list come in several calls, as they are received. After a list
	// that broke off they may be older than what it brought, if another API server
	// gives them: the watch behind the list brings what is newer. The memory of
	// objects is the source's again when Put returns.
	Put(kind Kind, objects ...Object)
	// Delete removes one; it may never have been there.
	Delete(Kind, Key)
	// Listed is the end of a list: the objects in it have been put, and what else
	// there is of the kind is gone. has tells the keys of those in it, until
	// Listed returns. A list that breaks off has no end, and another one follows.
	// The first Listed of every kind that the options ask for makes the sink
	// synced; a kind may be empty.
	Listed(kind Kind, has func(Key) bool)
}

// A Programmed is a Sink that is told how long an EndpointSlice of its Service
// took from what changed it, by the API server's clock, until Put has returned.
// What comes with a list is not told: it may be old.
type Programmed interface {
	Programmed(service Key, took time.Duration)
}

// A Source is one cluster, opened but not yet watched.
type Source struct {
	opts     Options
	timed    Programmed // nil if the sink does not want to know
	log      *slog.Logger
	metrics  *metrics.Registry
	heard    [Kinds]heard
	count    counters
	sweeper  *sweeper
	seed     maphash.Seed // of keys
	timeouts timeouts
}

// counters count by kind, for kinds that the options ask for.
type counters struct {
	relists, errors, events [Kinds]*metrics.Counter
}

// Open makes a Source of options that Check finds nothing wrong with. Nothing
// is read and nobody is called before Run.
func Open(o Options, log *slog.Logger, reg *metrics.Registry) *Source {
	s := &Source{opts: o, log: log, metrics: reg, sweeper: newSweeper(), seed: maphash.MakeSeed(), timeouts: defaultTimeouts()}
	for _, kind := range o.Kinds() {
		name := kind.String()
		s.count.relists[kind] = reg.Counter("seamark_kubernetes_relists_total", "Lists that were received whole, the first one too.", "resource", name)
		s.count.errors[kind] = reg.Counter("seamark_kubernetes_watch_errors_total", "Lists and watches that failed or broke off.", "resource", name)
		s.count.events[kind] = reg.Counter("seamark_kubernetes_events_total", "Changes of single objects that were received.", "resource", name)
	}
	return s
}

// Run delivers the cluster to sink until ctx is done, and returns when nothing
// of it runs any more. Whatever is missing or refused is logged once and tried
// again: there is no error that a restart would mend.
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

// Kinds lists the kinds that o asks for, in the order of their constants.
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
