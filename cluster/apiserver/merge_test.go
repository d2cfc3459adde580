package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/metrics"
)

// A recordingSink is a Sink that records its calls, and at the end of a list the objects
// that it has of the kind.
type recordingSink struct {
	lines []string
	has   [cluster.Kinds]map[cluster.Key]bool
}

func (s *recordingSink) Put(k cluster.Kind, objects ...cluster.Object) {
	for _, o := range objects {
		if s.has[k] == nil {
			s.has[k] = map[cluster.Key]bool{}
		}
		s.has[k][o.Key()] = true
		s.lines = append(s.lines, fmt.Sprint("put ", k, " ", o.Key()))
	}
}

func (s *recordingSink) Delete(k cluster.Kind, key cluster.Key) {
	delete(s.has[k], key)
	s.lines = append(s.lines, fmt.Sprint("delete ", k, " ", key))
}

func (s *recordingSink) Listed(k cluster.Kind, has func(cluster.Key) bool) {
	maps.DeleteFunc(s.has[k], func(key cluster.Key, _ bool) bool { return !has(key) })
	var left []string
	for key := range s.has[k] {
		left = append(left, key.String())
	}
	slices.Sort(left)
	s.lines = append(s.lines, fmt.Sprint("listed ", k, " ", strings.Join(left, " ")))
}

func TestMerge(t *testing.T) {
	got := new(recordingSink)
	source := newSource(new(metrics.Registry))
	m := newMerger(got, source.Monitor, []string{"a", "b"})
	a, b := namespaceSink{m, 0}, namespaceSink{m, 1}
	service := func(namespace, name string) cluster.Object { return &cluster.Service{Namespace: namespace, Name: name} }
	list := func(s namespaceSink, kind cluster.Kind, objects ...cluster.Object) {
		in := newKeys(source.seed)
		for _, o := range objects {
			in.add(o.Key())
		}
		s.Put(kind, objects...)
		s.listed(kind, in)
	}
	// The kind is listed once the other namespace has been listed.
	list(a, cluster.Services, service("a", "1"), service("a", "2"))
	a.Put(cluster.Services, service("a", "3"))
	a.Delete(cluster.Services, cluster.Key{Namespace: "a", Name: "1"})
	list(b, cluster.Services)
	b.Put(cluster.Services, service("b", "1"))
	a.Delete(cluster.Services, cluster.Key{Namespace: "a", Name: "2"})
	// A list of one namespace does not change the other.
	list(a, cluster.Services, service("a", "4"))
	list(b, cluster.Services, service("b", "2"))
	// Kinds are independent.
	list(b, cluster.Slices, &cluster.Slice{Namespace: "b", Name: "1"})
	want := []string{
		"put services a/1", "put services a/2", "put services a/3", "delete services a/1",
		"listed services a/2 a/3",
		"put services b/1", "delete services a/2",
		"put services a/4", "listed services a/4 b/1",
		"put services b/2", "listed services a/4 b/2",
		"put endpointslices b/1",
	}
	if lists := m.lists[cluster.Services]; lists[0].keys != nil || lists[1].keys != nil {
		t.Error("the keys of a kind are kept after all namespaces have been listed, want none")
	}
	if !slices.Equal(got.lines, want) {
		t.Errorf("calls: got\n%s\nwant\n%s", strings.Join(got.lines, "\n"), strings.Join(want, "\n"))
	}

	synctest.Test(t, func(t *testing.T) {
		source := newSource(new(metrics.Registry))
		for _, kind := range (cluster.Options{Pods: true, Multicluster: true}).Kinds() {
			source.Received(kind, time.Now().Add(time.Hour)) // Only changes of Services count.
		}
		m := newMerger(new(recordingSink), source.Monitor, []string{"a", "b"})
		a, b := namespaceSink{m, 0}, namespaceSink{m, 1}
		a.received(cluster.Services)
		time.Sleep(time.Minute)
		b.received(cluster.Services)
		b.received(cluster.Services)
		if age, _ := source.Age(); age != time.Minute {
			t.Errorf("age of a kind received from one namespace a minute ago and from the other now: got %v, want 1m", age)
		}
	})
}

// The objects that a list lacks are compared with those of its namespace, which may be few
// among all.
func TestMergeMissing(t *testing.T) {
	sink := &comparingSink{objects: map[cluster.Key]bool{}}
	source := newSource(new(metrics.Registry))
	m := newMerger(sink, source.Monitor, []string{"a", "b", "c"})
	for i, namespace := range m.namespaces {
		s, in := namespaceSink{m, i}, newKeys(source.seed)
		for n := range 5 {
			o := &cluster.Service{Namespace: namespace, Name: fmt.Sprint(n)}
			in.add(o.Key())
			s.Put(cluster.Services, o)
		}
		s.listed(cluster.Services, in)
	}
	if missing, objects := (namespaceSink{m, 1}).missing(cluster.Services, newKeys(source.seed)); missing != 5 || objects != 5 {
		t.Errorf("an empty list of one of three namespaces: got %d of %d objects missing, want 5 of 5", missing, objects)
	}
}

// Until all namespaces have been listed, a list deletes what a snapshot has of its own
// namespace only.
func TestMergeAfterSnapshot(t *testing.T) {
	sink := &comparingSink{objects: map[cluster.Key]bool{}}
	source := newSource(new(metrics.Registry))
	m := newMerger(sink, source.Monitor, []string{"a", "b"})
	for _, namespace := range m.namespaces {
		for n := range 3 {
			sink.Put(cluster.Services, &cluster.Service{Namespace: namespace, Name: fmt.Sprint(n)})
		}
	}
	in := newKeys(source.seed)
	in.add(cluster.Key{Namespace: "a", Name: "1"})
	namespaceSink{m, 0}.listed(cluster.Services, in)
	var got []string
	for key := range sink.objects {
		got = append(got, key.String())
	}
	slices.Sort(got)
	if want := []string{"a/1", "b/0", "b/1", "b/2"}; !slices.Equal(got, want) {
		t.Errorf("Services after a list of namespace a, before one of b: got %q, want %q", got, want)
	}
}

// wholeCluster returns the sink of a feed that watches all namespaces.
func wholeCluster(sink cluster.Sink, monitor *cluster.Monitor) namespaceSink {
	return namespaceSink{newMerger(sink, monitor, []string{""}), 0}
}
