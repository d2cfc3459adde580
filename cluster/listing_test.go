package cluster

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/seamark/seamark/metrics"
)

// numbered are Services as the items of a list, and their names as a script has
// them.
func numbered(from, to int) (items, names string) {
	var all, keys []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf(`{"metadata":{"namespace":"shop","name":"s%04d"}}`, i))
		keys = append(keys, fmt.Sprintf("shop/s%04d", i))
	}
	return strings.Join(all, ","), strings.Join(keys, " ")
}

// A list that breaks off half-way brings what it has brought and takes nothing
// away. The next one is whole: what was deleted meanwhile goes at its end.
func TestLiveRelist(t *testing.T) {
	for _, c := range []struct {
		old       bool
		cut, puts int
	}{
		{false, 0, 2 * 600},
		{false, groupSize + 9, 2*600 + groupSize},
		{true, 0, 2 * 600},
	} {
		t.Run(fmt.Sprintf("old %v, cut %d", c.old, c.cut), func(t *testing.T) {
			before, names := numbered(0, 600)
			a := serve(t, &api{old: c.old, objects: map[string]string{"services": before}})
			f, stop := watchCluster(t, Options{Endpoint: a.URL, NoEndpoints: true})
			f.got(t, "listed services "+names)
			f.got(t, "listed namespaces ")
			after, names := numbered(300, 900)
			a.change("services", after, c.cut)
			f.got(t, "listed services "+names)
			stop()
			puts, lists := 0, 0
			for _, line := range f.script.lines {
				switch {
				case strings.HasPrefix(line, "put services "):
					puts++
				case strings.HasPrefix(line, "listed services "):
					lists++
				case strings.HasPrefix(line, "delete "):
					t.Error(line)
				}
			}
			if puts != c.puts || lists != 2 {
				t.Errorf("%d objects were put, want %d, in %d lists", puts, c.puts, lists)
			}
		})
	}
}

// received are the events of one watch, of slices.
func received(t *testing.T, events ...watch.Event) (*store, *script, watch.Event, bool) {
	t.Helper()
	sink := new(script)
	source := Open(Options{Multicluster: true}, slog.New(slog.DiscardHandler), new(metrics.Registry))
	s := &store{source: source, kinds: []Kind{Slices, ImportSlices}, out: whole{sink, source}, fine: func() {}}
	all := make(chan watch.Event, len(events))
	for _, e := range events {
		all <- e
	}
	close(all)
	last, ok := s.receive(all)
	return s, sink, last, ok
}

// A list may change while it is received.
func TestReceive(t *testing.T) {
	slice := func(what watch.EventType, name, cluster string) watch.Event {
		return watch.Event{Type: what, Object: &arrived{name: name, namespace: "shop", object: &Slice{Namespace: "shop", Name: name, Cluster: cluster}}}
	}
	bookmark := watch.Event{Type: watch.Bookmark, Object: &arrived{annotations: map[string]string{annotationListed: "true"}}}
	s, sink, last, ok := received(t,
		slice(watch.Added, "stays", ""), slice(watch.Added, "gone", ""), slice(watch.Added, "unwanted", ""), slice(watch.Added, "exported", ""),
		watch.Event{Type: watch.Bookmark, Object: new(arrived)},
		slice(watch.Deleted, "gone", ""),
		watch.Event{Type: watch.Modified, Object: &arrived{name: "unwanted", namespace: "shop"}},
		slice(watch.Modified, "exported", "east"),
		slice(watch.Deleted, "back", ""), slice(watch.Added, "back", ""),
		bookmark,
		slice(watch.Added, "later", ""),
	)
	if !ok || last.Object != bookmark.Object || len(sink.lines) > 0 {
		t.Errorf("ended by %v %v, after %q", ok, last, sink.lines)
	}
	if err := s.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"listed endpointslices shop/back shop/stays", "listed endpointslices (multicluster) shop/exported"} {
		if !slices.Contains(sink.lines, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(sink.lines, "\n"))
		}
	}

	failed := watch.Event{Type: watch.Error}
	if _, _, last, ok := received(t, slice(watch.Added, "a", ""), failed, bookmark); !ok || last.Type != watch.Error {
		t.Errorf("an error: %v %v", ok, last)
	}
	if _, _, last, ok := received(t, slice(watch.Added, "a", "")); !ok || last.Type != watch.Added {
		t.Errorf("broken off: %v %v", ok, last)
	}
	if _, _, _, ok := received(t); ok {
		t.Error("nothing came")
	}
}

// Of a list little more is held than a group of its objects, however long it is.
func TestListingHolds(t *testing.T) {
	const objects, each = 10_000, 1 << 10
	sink := new(idle)
	source := Open(Options{}, slog.New(slog.DiscardHandler), new(metrics.Registry))
	s := &store{source: source, kinds: []Kind{Slices}, out: whole{sink, source}, fine: func() {}}
	live := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := live()
	s.begin()
	for i := range objects {
		name := fmt.Sprint("slice-", i)
		s.listing.put(&arrived{name: name, object: &Slice{Name: name, Endpoints: Endpoints(make([]byte, each))}})
	}
	// A hash in a map that may have grown just now, and a group.
	if held, most := live()-before, 48*objects+2*groupSize*each; held > most {
		t.Errorf("%d bytes are held, more than %d", held, most)
	}
	for i := range objects {
		if !s.listing.groups[0].keys.has(Key{Name: fmt.Sprint("slice-", i)}) {
			t.Fatalf("slice-%d is not in the list", i)
		}
	}
	if s.listing.groups[0].keys.has(Key{Name: "slice"}) || s.listing.groups[0].keys.has(Key{"slice-", "1"}) {
		t.Error("others are")
	}
	if err := s.Replace(nil, ""); err != nil || sink.objects != objects {
		t.Errorf("%d objects were put: %v", sink.objects, err)
	}
}
