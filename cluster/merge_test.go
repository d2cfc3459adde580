package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A script is a Sink that writes down what it gets.
type script struct{ lines []string }

func (s *script) Put(k Kind, o Object) {
	s.lines = append(s.lines, fmt.Sprint("put ", k, " ", o.Key()))
}
func (s *script) Delete(k Kind, key Key) {
	s.lines = append(s.lines, fmt.Sprint("delete ", k, " ", key))
}
func (s *script) Replace(k Kind, os []Object) {
	var keys []string
	for _, o := range os {
		keys = append(keys, fmt.Sprint(o.Key()))
	}
	slices.Sort(keys)
	s.lines = append(s.lines, fmt.Sprint("replace ", k, " ", strings.Join(keys, " ")))
}

func TestMerge(t *testing.T) {
	got := new(script)
	var marks [Kinds]heard
	m := newMerger(got, &marks, 2)
	a, b := share{m, 0}, share{m, 1}
	service := func(namespace, name string) Object { return &Service{Namespace: namespace, Name: name} }
	// Until the other namespace has been listed, this one waits.
	a.Replace(Services, []Object{service("a", "1"), service("a", "2")})
	a.Put(Services, service("a", "3"))
	a.Delete(Services, Key{"a", "1"})
	b.Replace(Services, nil)
	b.Put(Services, service("b", "1"))
	a.Delete(Services, Key{"a", "2"})
	// A relist of one namespace leaves the other as it is.
	a.Replace(Services, []Object{service("a", "4")})
	// Each kind is on its own.
	b.Replace(Slices, []Object{&Slice{Namespace: "b", Name: "1"}})
	want := []string{
		"replace services a/2 a/3",
		"put services b/1",
		"delete services a/2",
		"replace services a/4 b/1",
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
