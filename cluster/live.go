package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// runLive follows an API server: one watch for each resource, or for each
// resource and namespace if the options name namespaces.
func (s *Source) runLive(ctx context.Context, sink Sink) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // the reflector has nothing to say that is not logged here
	state := &state{log: s.log, metrics: s.metrics}
	client := newClient(s.opts, state)
	defer client.closeIdle()

	var feeds sync.WaitGroup
	follow := func(r resource, namespace string, out outlet) {
		f := &feed{resource: r, namespace: namespace, client: client, state: state,
			store: &store{source: s, kinds: r.kinds, slim: r.slim, out: out}}
		feeds.Go(func() { f.run(ctx) })
	}
	var namespaces []string
	if s.opts.Namespaces != "" {
		namespaces = strings.Split(s.opts.Namespaces, ",")
	}
	if key := s.opts.configMapKey(); key.Name != "" {
		follow(s.configMaps(), key.Namespace, whole{sink, s})
		feeds.Wait()
		return
	}
	merger := newMerger(sink, &s.heard, len(namespaces))
	for _, r := range s.resources() {
		if namespaces == nil {
			follow(r, "", whole{sink, s})
		}
		for i, namespace := range namespaces {
			if r.kinds[0] == Namespaces { // these are not in a namespace
				r.fields, namespace = "metadata.name="+namespace, ""
			}
			follow(r, namespace, share{merger, i})
		}
	}
	feeds.Wait()
}

// A resource is what the API server is asked for.
type resource struct {
	group          schema.GroupVersion
	name           string
	one, many      func() runtime.Object
	labels, fields string // selectors
	kinds          []Kind // what its objects become
	slim           func(runtime.Object) Object
}

// String gives the name as it is spelled in a Role: with the group, if any.
func (r resource) String() string {
	return strings.TrimSuffix(r.name+"."+r.group.Group, ".")
}

// resources lists what the options ask for. EndpointSlices are watched once,
// and it is their labels that make them this cluster's own or imported.
func (s *Source) resources() []resource {
	o := s.opts
	warn := warnOnce(s.log)
	rs := []resource{
		resourceOf(corev1.SchemeGroupVersion, Namespaces, func() runtime.Object { return new(corev1.NamespaceList) }, o.namespace),
		resourceOf(corev1.SchemeGroupVersion, Services, func() runtime.Object { return new(corev1.ServiceList) },
			func(svc *corev1.Service) *Service { return o.service(svc, warn) }),
	}
	rs[0].labels, rs[1].labels = o.NamespaceLabels, o.Labels
	if !o.NoEndpoints {
		r := resourceOf(discoveryv1.SchemeGroupVersion, Slices, func() runtime.Object { return new(discoveryv1.EndpointSliceList) },
			func(slice *discoveryv1.EndpointSlice) *Slice { return o.slice(slice, warn) })
		r.labels = o.Labels
		if o.Multicluster {
			r.kinds = append(r.kinds, ImportSlices)
		}
		rs = append(rs, r)
	}
	if o.Pods {
		r := resourceOf(corev1.SchemeGroupVersion, Pods, func() runtime.Object { return new(corev1.PodList) }, o.pod)
		r.labels, r.fields = o.Labels, "status.phase!=Succeeded,status.phase!=Failed,status.phase!=Unknown"
		rs = append(rs, r)
	}
	if o.Multicluster {
		rs = append(rs, resourceOf(importsVersion(), Imports, func() runtime.Object { return new(serviceImportList) },
			func(si *serviceImport) *Service { return o.serviceImport(si, warn) }))
	}
	return rs
}

// maxTold is how many different warnings about objects are logged.
const maxTold = 1000

// warnOnce logs what has not been said before: an object comes again with each
// of its changes, and all of them come again with each list.
func warnOnce(log *slog.Logger) func(format string, args ...any) {
	var mu sync.Mutex
	said := map[string]struct{}{}
	return func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		mu.Lock()
		defer mu.Unlock()
		if _, ok := said[text]; ok || len(said) == maxTold {
			return
		}
		said[text] = struct{}{}
		log.Warn(text)
		if len(said) == maxTold {
			log.Warn("no more warnings about single objects are shown")
		}
	}
}

// resourceOf describes the resource whose objects are decoded as In and slimmed
// to Out.
func resourceOf[In, Out any, PIn interface {
	*In
	runtime.Object
}, POut interface {
	*Out
	Object
}](group schema.GroupVersion, kind Kind, many func() runtime.Object, slim func(PIn) POut) resource {
	return resource{
		group: group, name: kind.String(), kinds: []Kind{kind},
		one:  func() runtime.Object { return PIn(new(In)) },
		many: many,
		slim: func(obj runtime.Object) Object {
			if slim := slim(obj.(PIn)); slim != nil {
				return slim
			}
			return nil // and not an Object that holds a nil pointer
		},
	}
}

// An outlet is where a store's objects go.
type outlet interface {
	Sink
	hear(Kind) // the kind was heard of now
}

// whole is the outlet of a resource that is watched in all namespaces at once.
type whole struct {
	Sink
	source *Source
}

func (w whole) hear(kind Kind) { w.source.heard[kind].now() }
