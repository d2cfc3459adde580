package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"
)

// runLive runs one feed for each resource, or for each resource and namespace if the
// options name namespaces.
func (s *Source) runLive(ctx context.Context, sink Sink) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // the reflector's messages are logged by the feed
	state := &state{log: s.log, metrics: s.metrics, age: s.age}
	client := newClient(s.opts, state)
	defer client.closeIdle()

	var feeds sync.WaitGroup
	follow := func(r resource, namespace string, out outlet) {
		f := &feed{resource: r, namespace: namespace, client: client, state: state,
			store: &store{source: s, kinds: r.kinds, out: out}, detector: newStallDetector(s.timeouts)}
		feeds.Go(func() { f.run(ctx) })
	}
	var namespaces []string
	if s.opts.Namespaces != "" {
		namespaces = strings.Split(s.opts.Namespaces, ",")
	}
	if key := s.opts.configMapKey(); key.Name != "" {
		follow(s.opts.configMaps(), key.Namespace, whole{sink, s})
		feeds.Wait()
		return
	}
	if s.opts.Nodes {
		follow(s.opts.nodes(), "", whole{sink, s})
		feeds.Wait()
		return
	}
	merger := newMerger(sink, &s.heard, len(namespaces))
	for _, r := range s.opts.resources(warnOnce(s.log)) {
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

// A resource describes the requests for one kind of object.
type resource struct {
	group          schema.GroupVersion
	version        string // group as in an object's apiVersion
	name           string
	kind           string // of an object; a list has the suffix List
	labels, fields string // selectors
	kinds          []Kind // of the slimmed objects
	metadata       bool   // request only the metadata
	// read decodes and slims an object in protobuf, parse one in JSON. The result does
	// not refer to raw.
	read  func(c *codec, raw []byte, a *arrived) error
	parse func(raw []byte, a *arrived) error
}

// String returns the name as in a Role, followed by the group.
func (r resource) String() string {
	return strings.TrimSuffix(r.name+"."+r.group.Group, ".")
}

// resources returns the resources that the options ask for. warn is called for
// invalid objects. EndpointSlices are watched once: their labels tell imported ones
// from the cluster's own.
func (o Options) resources(warn func(format string, args ...any)) []resource {
	rs := []resource{
		resourceOf(coreVersion(), Namespaces, "Namespace", readNamespace, o.namespace),
		resourceOf(coreVersion(), Services, "Service", readService,
			func(svc *apiService) *Service { return o.service(svc, warn) }),
	}
	rs[0].labels, rs[1].labels = o.NamespaceLabels, o.Labels
	if !o.NoEndpoints {
		r := resourceOf(slicesVersion(), Slices, "EndpointSlice", nil,
			func(slice *apiSlice) *Slice { return o.slice(slice, warn) })
		r.read = func(c *codec, raw []byte, a *arrived) (err error) {
			var slice *Slice
			if slice, c.room, err = o.readSlice(raw, a, c.room, warn); slice != nil {
				a.object = slice
			}
			return err
		}
		r.labels = o.Labels
		if o.Multicluster {
			r.kinds = append(r.kinds, ImportSlices)
		}
		rs = append(rs, r)
	}
	if o.Pods {
		r := resourceOf(coreVersion(), Pods, "Pod", o.readPod, o.pod)
		r.labels, r.fields = o.Labels, "status.phase!=Succeeded,status.phase!=Failed,status.phase!=Unknown"
		rs = append(rs, r)
	}
	if o.Multicluster {
		rs = append(rs, resourceOf(importsVersion(), Imports, "ServiceImport", noProtobuf,
			func(si *apiServiceImport) *Service { return o.serviceImport(si, warn) }))
	}
	return rs
}

// maxWarnings is the largest number of different warnings about objects.
const maxWarnings = 1000

// warnOnce returns a function that logs each warning once: an object is received
// again with each of its changes and with each list.
func warnOnce(log *slog.Logger) func(format string, args ...any) {
	var mu sync.Mutex
	said := map[string]struct{}{}
	return func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		mu.Lock()
		defer mu.Unlock()
		if _, ok := said[text]; ok || len(said) == maxWarnings {
			return
		}
		said[text] = struct{}{}
		log.Warn(text)
		if len(said) == maxWarnings {
			log.Warn("no more warnings about single objects are shown")
		}
	}
}

// resourceOf returns the resource whose objects are decoded to In and slimmed to Out.
func resourceOf[In, Out any, PIn interface {
	*In
	meta() *apiMeta
}, POut interface {
	*Out
	Object
}](group schema.GroupVersion, of Kind, kind string, read func([]byte, *arrived) (In, error), slim func(PIn) POut) resource {
	put := func(in PIn, a *arrived) {
		if slim := slim(in); slim != nil { // and not an Object that holds a nil pointer
			a.object = slim
		}
	}
	return resource{
		group: group, version: group.String(), name: of.String(), kind: kind, kinds: []Kind{of},
		read: func(_ *codec, raw []byte, a *arrived) error {
			in, err := read(raw, a)
			if err == nil {
				put(&in, a)
			}
			return err
		},
		parse: func(raw []byte, a *arrived) error {
			in := new(In)
			err := utiljson.Unmarshal(raw, in)
			if err == nil {
				a.take(PIn(in).meta())
				put(in, a)
			}
			return err
		},
	}
}

// noProtobuf rejects protobuf for a custom resource.
func noProtobuf[In any]([]byte, *arrived) (in In, err error) {
	return in, errors.New("a custom resource in protobuf")
}

// An outlet receives a store's objects.
type outlet interface {
	Put(Kind, ...Object)
	Delete(Kind, Key)
	listed(Kind, *keys) // a list has ended; the outlet owns the keys
	hear(Kind)          // something about the kind was received
}

// whole is the outlet of a resource that is watched in all namespaces by one feed.
type whole struct {
	Sink
	source *Source
}

func (w whole) listed(kind Kind, in *keys) { w.Listed(kind, in.has) }

func (w whole) hear(kind Kind) { w.source.heard[kind].now() }
