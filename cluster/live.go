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

// runLive follows an API server: one watch for each resource, or for each
// resource and namespace if the options name namespaces.
func (s *Source) runLive(ctx context.Context, sink Sink) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // the reflector has nothing to say that is not logged here
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

// A resource is what the API server is asked for.
type resource struct {
	group          schema.GroupVersion
	version        string // the group as an object's apiVersion has it
	name           string
	kind           string // of an object; that of a list has List behind it
	labels, fields string // selectors
	kinds          []Kind // what its objects become
	metadata       bool   // is all that is wanted of them
	// read slims an object in protobuf, parse one in JSON. Neither keeps anything
	// of the text.
	read  func(c *codec, raw []byte, a *arrived) error
	parse func(raw []byte, a *arrived) error
}

// String gives the name as it is spelled in a Role: with the group, if any.
func (r resource) String() string {
	return strings.TrimSuffix(r.name+"."+r.group.Group, ".")
}

// resources lists what the options ask for; warn is told of objects that make
// no sense. EndpointSlices are watched once,
// and it is their labels that make them this cluster's own or imported.
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

// resourceOf describes the resource whose objects are read as In and slimmed to
// Out.
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

// noProtobuf is for custom resources, which are never in it.
func noProtobuf[In any]([]byte, *arrived) (in In, err error) {
	return in, errors.New("a custom resource in protobuf")
}

// An outlet is where a store's objects go.
type outlet interface {
	Put(Kind, ...Object)
	Delete(Kind, Key)
	listed(Kind, *keys) // a list has ended; the keys are the outlet's from here on
	hear(Kind)          // the kind was heard of now
}

// whole is the outlet of a resource that is watched in all namespaces at once.
type whole struct {
	Sink
	source *Source
}

func (w whole) listed(kind Kind, in *keys) { w.Listed(kind, in.has) }

func (w whole) hear(kind Kind) { w.source.heard[kind].now() }
