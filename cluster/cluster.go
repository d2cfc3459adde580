// Package cluster delivers a Kubernetes cluster's Namespaces, Services,
// EndpointSlices, Pods and ServiceImports as a stream of slim objects. They
// come from an API server (live.go) or from a folder of manifests
// (manifests.go); whoever takes them cannot tell which.
//
// The handlers that need a cluster's state open a Source and give it a Sink.
// Data flows one way: this package knows nothing of DNS, and it is the only
// one that imports client-go.
package cluster

import (
	"context"
	"log/slog"
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

	// Limits on our own requests; zero is client-go's default.
	QPS         float32
	Burst       int
	MaxInflight int
}

// A Sink takes a source's objects. Calls come from several goroutines, one per
// kind; the sink serializes them itself, and must not call back.
type Sink interface {
	// Put adds or replaces one object.
	Put(Kind, Object)
	// Delete removes one; it may never have been there.
	Delete(Kind, Key)
	// Replace gives a kind whole, after a list: what is not in it is gone. The
	// first Replace of every kind that the options ask for makes the sink
	// synced; a kind may be empty.
	Replace(Kind, []Object)
}

// A Source is one cluster, opened but not yet watched.
type Source struct {
	opts  Options
	log   *slog.Logger
	heard [Kinds]heard
	run   func(ctx context.Context, sink Sink) error
}

// Kinds lists the kinds that o asks for, in the order of their constants.
func (o Options) Kinds() []Kind {
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
