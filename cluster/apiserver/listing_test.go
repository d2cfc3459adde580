package apiserver

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/metrics"
)

// numbered returns Services as items of a list, and their names as a
// recordingSink records them.
func numbered(from, to int) (items, names string) {
	var all, keys []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf(`{"metadata":{"namespace":"shop","name":"s%04d"}}`, i))
		keys = append(keys, fmt.Sprintf("shop/s%04d", i))
	}
	return strings.Join(all, ","), strings.Join(keys, " ")
}

// A list that breaks off delivers the objects received and deletes none. The next
// list is complete: objects deleted meanwhile are deleted at its end.
func TestLiveRelist(t *testing.T) {
	for _, c := range []struct {
		old       bool
		cut, puts int
	}{
		{false, 0, 2 * 600},
		{false, cluster.GroupSize + 9, 2*600 + cluster.GroupSize},
		{true, 0, 2 * 600},
	} {
		t.Run(fmt.Sprintf("old %v, cut %d", c.old, c.cut), func(t *testing.T) {
			before, names := numbered(0, 600)
			a := serve(t, &fakeServer{old: c.old, objects: map[string]string{"services": before}})
			f, stop := watchCluster(t, cluster.Options{Endpoint: a.URL, NoEndpoints: true})
			f.waitForCall(t, "listed services "+names)
			f.waitForCall(t, "listed namespaces ")
			after, names := numbered(300, 900)
			a.change("services", after, c.cut)
			f.waitForCall(t, "listed services "+names)
			stop()
			puts, lists := 0, 0
			for _, line := range f.sink.lines {
				switch {
				case strings.HasPrefix(line, "put services "):
					puts++
				case strings.HasPrefix(line, "listed services "):
					lists++
				case strings.HasPrefix(line, "delete "):
					t.Errorf("got call %q, want no deletion by key", line)
				}
			}
			if puts != c.puts || lists != 2 {
				t.Errorf("got %d objects in %d lists, want %d in 2", puts, lists, c.puts)
			}
		})
	}
}

// received passes the events of one watch of EndpointSlices to a new store.
func received(t *testing.T, events ...watch.Event) (*store, *recordingSink, watch.Event, bool) {
	t.Helper()
	sink := new(recordingSink)
	source := newSource(new(metrics.Registry))
	s := &store{source: source, kinds: []cluster.Kind{cluster.Slices, cluster.ImportSlices}, sink: wholeCluster(sink, source.Monitor)}
	all := make(chan watch.Event, len(events))
	for _, e := range events {
		all <- e
	}
	close(all)
	last, ok := s.receiveList(all)
	return s, sink, last, ok
}

// A list may change while it is received.
func TestReceive(t *testing.T) {
	slice := func(what watch.EventType, name, from string) watch.Event {
		return watch.Event{Type: what, Object: &decodedObject{Decoded: api.Decoded{Name: name, Namespace: "shop", Slim: &cluster.Slice{Namespace: "shop", Name: name, Cluster: from}}}}
	}
	bookmark := watch.Event{Type: watch.Bookmark, Object: &decodedObject{Decoded: api.Decoded{ListEnd: "true"}}}
	s, sink, last, ok := received(t,
		slice(watch.Added, "stays", ""), slice(watch.Added, "gone", ""), slice(watch.Added, "unwanted", ""), slice(watch.Added, "exported", ""),
		watch.Event{Type: watch.Bookmark, Object: new(decodedObject)},
		slice(watch.Deleted, "gone", ""),
		watch.Event{Type: watch.Modified, Object: &decodedObject{Decoded: api.Decoded{Name: "unwanted", Namespace: "shop"}}},
		slice(watch.Modified, "exported", "east"),
		slice(watch.Deleted, "back", ""), slice(watch.Added, "back", ""),
		bookmark,
		slice(watch.Added, "later", ""),
	)
	if !ok || last.Object != bookmark.Object || len(sink.lines) > 0 {
		t.Errorf("got end %v by %v after the calls %q, want the bookmark before any call", ok, last, sink.lines)
	}
	s.endList("")
	for _, want := range []string{"listed endpointslices shop/back shop/stays", "listed endpointslices (multicluster) shop/exported"} {
		if !slices.Contains(sink.lines, want) {
			t.Errorf("got the calls\n%s\nwant %s", strings.Join(sink.lines, "\n"), want)
		}
	}

	failed := watch.Event{Type: watch.Error}
	if _, _, last, ok := received(t, slice(watch.Added, "a", ""), failed, bookmark); !ok || last.Type != watch.Error {
		t.Errorf("an error: got end %v by %v, want it by the error", ok, last)
	}
	if _, _, last, ok := received(t, slice(watch.Added, "a", "")); !ok || last.Type != watch.Added {
		t.Errorf("broken off: got end %v by %v, want it by the last event", ok, last)
	}
	if _, _, _, ok := received(t); ok {
		t.Error("an empty response was a list, want none")
	}
}

// The memory held for a list is little more than one group of its objects, for
// any length.
func TestListingMemory(t *testing.T) {
	const objects, each = 10_000, 1 << 10
	sink := new(countingSink)
	source := newSource(new(metrics.Registry))
	s := &store{source: source, kinds: []cluster.Kind{cluster.Slices}, sink: wholeCluster(sink, source.Monitor)}
	live := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := live()
	s.startList()
	for i := range objects {
		name := fmt.Sprint("slice-", i)
		s.list.put(&api.Decoded{Name: name, Slim: &cluster.Slice{Name: name, Endpoints: cluster.Endpoints(make([]byte, each))}})
	}
	// A hash for each object in a map that may just have grown, and a group.
	if held, most := live()-before, 48*objects+2*cluster.GroupSize*each; held > most {
		t.Errorf("memory held for a list of %d objects: got %d bytes, want at most %d", objects, held, most)
	}
	for i := range objects {
		if !s.list.byKind[0].keys.has(cluster.Key{Name: fmt.Sprint("slice-", i)}) {
			t.Fatalf("keys of the list: slice-%d is missing, want all %d", i, objects)
		}
	}
	if s.list.byKind[0].keys.has(cluster.Key{Name: "slice"}) || s.list.byKind[0].keys.has(cluster.Key{Namespace: "slice-", Name: "1"}) {
		t.Error("keys of the list: got keys that were not put, want none")
	}
	if s.endList(""); sink.objects != objects {
		t.Errorf("endList: got %d objects, want %d", sink.objects, objects)
	}
}

// The garbage of a list is collected while it is received, except for the first list.
func TestSweeperRelist(t *testing.T) {
	collected := 0
	source := newSource(new(metrics.Registry))
	source.Sweeper = cluster.NewSweeper(func() { collected++ }, func() {})
	s := &store{source: source, kinds: []cluster.Kind{cluster.Services}, sink: wholeCluster(new(countingSink), source.Monitor)}
	for _, relist := range []bool{false, true} {
		s.startList()
		for range 10_000 {
			s.list.put(new(api.Decoded))
		}
		if (collected > 0) != relist {
			t.Errorf("10,000 objects, replacing others %v: got %d collections, want some only if they replace others", relist, collected)
		}
		s.endList("")
	}
}
