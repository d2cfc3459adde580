// Package apiserver delivers the objects of a cluster by listing and watching its API
// server.
//
// Run starts a feed for each resource, or for each resource and namespace (feed.go). A feed keeps a
// client-go reflector running: it lists and watches over a client that loads the configuration
// (client.go), through a transport that limits requests (transport.go) and detects stalled ones
// (stall.go). The codec decodes each object straight into a slim one (codec.go). The objects of a
// list go to the sink in groups (listing.go), the events after it one by one (store.go), and the
// lists of several namespaces become one (merge.go). Every ten minutes a feed compares the versions
// of its objects with the API server's (compare.go). Metadata of single objects are requested when an
// answer is explained, and whole objects when the sink asks for them (origin.go). Problems are logged when
// they begin, at growing intervals, and when they end (reporter.go). A Recorder writes Events about objects (events.go).
package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// Run delivers the objects of the API server that the options name until ctx is
// done. Errors are logged and the request is retried. dial opens the connections; if it
// is nil, they are TCP connections.
func Run(ctx context.Context, o cluster.Options, sink cluster.Sink, m *cluster.Monitor, dial Dial) {
	runFeeds(ctx, o, sink, m, dial, defaultTimeouts())
}

// runFeeds runs one feed for each resource, or for each resource and namespace if the
// options name namespaces.
func runFeeds(
	ctx context.Context, o cluster.Options, sink cluster.Sink, m *cluster.Monitor, dial Dial, waits timeouts,
) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // the reflector's messages are logged by the feed
	reporter := &reporter{board: m.Health, owner: sink, log: m.Log, metrics: m.Metrics, age: m.Age}
	client := newClient(o, reporter, dial)
	defer client.closeIdle()

	s := &source{Monitor: m, seed: maphash.MakeSeed()}
	s.timed, _ = sink.(cluster.Programmed)
	var feeds sync.WaitGroup
	startFeed := func(r api.Resource, out namespaceSink) {
		f := newFeed(r, client, reporter, s, out, waits)
		feeds.Go(func() { f.run(ctx) })
		feeds.Go(func() { f.compareRegularly(ctx, cmp.Or(o.CompareInterval, compareInterval)) })
	}

	namespaces := []string{""} // one feed of a resource for all namespaces
	if o.Namespaces != "" && o.ConfigMap == "" && !o.Nodes {
		namespaces = strings.Split(o.Namespaces, ",")
	}
	merger := newMerger(sink, m, namespaces)
	resources := api.Slimmer{Options: o, Warn: warnOnce(m.Log)}.Resources()
	if t, ok := sink.(cluster.Traceable); ok {
		rate := flowcontrol.NewTokenBucketPassiveRateLimiter(originRate, originBurst)
		t.SetOrigins(client.readOrigin(resources, rate))
	}
	if r, ok := sink.(cluster.Rereader); ok {
		rate := flowcontrol.NewTokenBucketRateLimiter(rereadRate, rereadBurst)
		r.SetReader(client.readObject(resources, rate))
	}

	for _, r := range resources {
		for i, namespace := range namespaces {
			switch {
			case namespace == "": // the resource may have a namespace of its own
			case r.Kinds[0] == cluster.Namespaces: // these are not in a namespace
				r.Fields = "metadata.name=" + namespace
			default:
				r.Namespace = namespace
			}
			startFeed(r, namespaceSink{merger, i})
		}
	}
	feeds.Wait()
}

// A source is shared by the feeds.
type source struct {
	*cluster.Monitor
	timed cluster.Programmed // nil if the sink does not implement it
	seed  maphash.Seed       // of keys
}

// maxWarnings is the largest number of different warnings about objects.
const maxWarnings = 1000

// warnOnce returns a function that logs each warning once: an object is received
// again with each of its changes and with each list.
func warnOnce(log *slog.Logger) func(msg string, attrs ...any) {
	var mu sync.Mutex
	logged := map[string]bool{}
	return func(msg string, attrs ...any) {
		warning := fmt.Sprint(msg, attrs)
		mu.Lock()
		defer mu.Unlock()
		if logged[warning] || len(logged) == maxWarnings {
			return
		}
		logged[warning] = true
		log.Warn(msg, attrs...)
		if len(logged) == maxWarnings {
			log.Warn("Suppressed further warnings about objects", "count", maxWarnings)
		}
	}
}

// countMissing returns zero for a sink that is not a Comparer.
func countMissing(sink cluster.Sink, kind cluster.Kind, has func(cluster.Key) bool) (missing, objects int) {
	if c, ok := sink.(cluster.Comparer); ok {
		return c.Missing(kind, has)
	}
	return 0, 0
}
