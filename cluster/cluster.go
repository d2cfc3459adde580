// Package cluster defines the objects of a Kubernetes cluster that DNS needs, and the
// Sink that receives them: Namespaces, Services, EndpointSlices, Pods and ServiceImports,
// or a single ConfigMap, or Nodes, or ConfigMaps with labels and DNSEndpoints, or Gateways, Routes and
// Ingresses with their Services.
//
// A directive calls sources.Run with Options and a Sink. Depending on the options this
// runs package apiserver, which lists and watches an API server, or package manifests,
// which reads a folder. Both decode the API's objects with package api, which keeps only
// the fields of this package's types: slim objects. Both pass these to the Sink: first the
// objects of a list in groups, then Listed, then each change. A Monitor has the parts that
// both share: the log, the metrics and the age of the data.
//
// Data flows one way: these packages do not know DNS.
package cluster

import (
	"context"
	"time"
)

// Options select a cluster, and the objects in it. They are comparable, so that two
// directives with equal options can share one source.
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
	NodeName        string // deliver the Pods on this Node only, and with Nodes only this Node; "" is all
	Multicluster    bool   // deliver ServiceImports and their EndpointSlices
	PodNames        bool   // use the pod's name, if shorter than 64 bytes, for an endpoint without hostname
	Zones           bool   // keep each endpoint's topology zone
	Hints           bool   // take the zone of an endpoint from its hints
	// ConfigMap selects one ConfigMap, NAMESPACE/NAME, and no other object.
	ConfigMap string
	Nodes     bool // deliver Nodes alone: all, or the Node NodeName
	// ConfigMapLabels, a label selector, and DNSEndpoints select these objects, and no others,
	// of all namespaces or of Namespaces. "" selects no ConfigMap.
	ConfigMapLabels string
	DNSEndpoints    bool
	// Published selects objects by kind, and no others: Gateways, Routes and Ingresses, which publish hosts,
	// Namespaces, with their labels, and NetworkPolicies. With one of the first three Services are delivered
	// as Frontends, too, and with Gateways Namespaces.
	Published KindSet
	External  bool // keep the external addresses of Services
	PodLabels bool // keep the labels of Pods

	// Limits of the requests to the API server, including watches; zero means no limit.
	// If only one of QPS and Burst is set, the other has client-go's default (5, 10).
	QPS         float32
	Burst       int
	MaxInflight int

	// CompareInterval is the time between two comparisons with the API server; zero is ten
	// minutes.
	CompareInterval time.Duration
}

// A Sink receives a source's objects. Its methods are called from several goroutines,
// one for each kind, and must not call the source.
//
// A Sink may also be a Traceable, a Rereader, a Programmed or a Comparer, below. The index of
// directive/kubernetes is a Traceable, a Programmed and a Comparer.
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
	// the options select.
	Listed(kind Kind, has func(Key) bool)
}

// GroupSize is the number of objects of a list that go to the sink in one call: enough
// to build most Services once from all of their slices, and few to hold.
const GroupSize = 256

// A Traceable is a Sink that explains where its objects are from. The source calls SetOrigins
// once, before it delivers objects.
type Traceable interface{ SetOrigins(ReadOrigin) }

// A Rereader is a Sink that may ask for objects that it has received, and has not kept. The source
// calls SetReader once, before it delivers objects.
type Rereader interface{ SetReader(ReadObject) }

// ReadObject reads an object from the source, as it would deliver it; nil if the source does not have it
// any more. It blocks until ctx ends at most. It may be called from several goroutines.
type ReadObject func(ctx context.Context, kind Kind, key Key) (Object, error)

// A Programmed is a Sink that measures delays. Package apiserver calls it after Put of an
// EndpointSlice, with the time since the change of an endpoint that caused it, by the API
// server's clock. It is not called for the objects of lists.
type Programmed interface {
	Programmed(service Key, took time.Duration)
}

// A Comparer is a Sink that compares a list with its objects. If most of them are missing, the
// API server may have lost its data: package apiserver then calls Listed only after another list.
type Comparer interface {
	// Missing returns how many objects of a kind the sink has, and how many of them are not
	// in a list. It may count an object several times if others depend on it.
	Missing(kind Kind, has func(Key) bool) (missing, objects int)
}

// Kinds returns the kinds that o selects, in the order of their constants.
func (o Options) Kinds() []Kind {
	if o.ConfigMap != "" {
		return []Kind{ConfigMaps}
	}
	if o.Nodes {
		return []Kind{Nodes}
	}
	if o.Records() {
		return o.recordKinds()
	}
	if o.Published != 0 {
		return o.publishedKinds()
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

// Records reports whether o selects objects with records: ConfigMaps by their labels, or
// DNSEndpoints.
func (o Options) Records() bool { return o.ConfigMapLabels != "" || o.DNSEndpoints }

func (o Options) recordKinds() (ks []Kind) {
	if o.ConfigMapLabels != "" {
		ks = append(ks, ConfigMaps)
	}
	if o.DNSEndpoints {
		ks = append(ks, DNSEndpoints)
	}
	return ks
}
