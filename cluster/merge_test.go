package cluster

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/metrics"
)

// A script is a Sink that writes down what it gets, and at the end of a list what
// it has of the kind.
type script struct {
	lines []string
	has   [Kinds]map[Key]bool
}

func (s *script) Put(k Kind, objects ...Object) {
	for _, o := range objects {
		if s.has[k] == nil {
			s.has[k] = map[Key]bool{}
		}
		s.has[k][o.Key()] = true
		s.lines = append(s.lines, fmt.Sprint("put ", k, " ", o.Key()))
	}
}

func (s *script) Delete(k Kind, key Key) {
	delete(s.has[k], key)
	s.lines = append(s.lines, fmt.Sprint("delete ", k, " ", key))
}

func (s *script) Listed(k Kind, has func(Key) bool) {
	maps.DeleteFunc(s.has[k], func(key Key, _ bool) bool { return !has(key) })
	var left []string
	for key := range s.has[k] {
		left = append(left, key.String())
	}
	slices.Sort(left)
	s.lines = append(s.lines, fmt.Sprint("listed ", k, " ", strings.Join(left, " ")))
}

func TestMerge(t *testing.T) {
	got := new(script)
	source := Open(Options{}, slog.New(slog.DiscardHandler), new(metrics.Registry))
	var marks [Kinds]heard
	m := newMerger(got, &marks, 2)
	a, b := share{m, 0}, share{m, 1}
	service := func(namespace, name string) Object { return &Service{Namespace: namespace, Name: name} }
	list := func(s share, kind Kind, objects ...Object) {
		in := source.newKeys()
		for _, o := range objects {
			in.add(o.Key())
		}
		s.Put(kind, objects...)
		s.listed(kind, in)
	}
	// Until the other namespace has been listed, the kind has not been.
	list(a, Services, service("a", "1"), service("a", "2"))
	a.Put(Services, service("a", "3"))
	a.Delete(Services, Key{"a", "1"})
	list(b, Services)
	b.Put(Services, service("b", "1"))
	a.Delete(Services, Key{"a", "2"})
	// A relist of one namespace leaves the other as it is.
	list(a, Services, service("a", "4"))
	list(b, Services, service("b", "2"))
	// Each kind is on its own.
	list(b, Slices, &Slice{Namespace: "b", Name: "1"})
	want := []string{
		"put services a/1", "put services a/2", "put services a/3", "delete services a/1",
		"listed services a/2 a/3",
		"put services b/1", "delete services a/2",
		"put services a/4", "listed services a/4 b/1",
		"put services b/2", "listed services a/4 b/2",
		"put endpointslices b/1",
	}
	if !slices.Equal(got.lines, want) {
		t.Errorf("got\n%s", strings.Join(got.lines, "\n"))
	}

	before := marks[Services].age()
	a.hear(Services)
	b.hear(Services)
	at := marks[Services].at.Load()
	b.hear(Services)
	if marks[Services].at.Load() != at || marks[Services].age() > before {
		t.Error("a kind is as old as the namespace that was not heard of for longest")
	}
}
