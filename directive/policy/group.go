package policy

import (
	"strings"
	"sync/atomic"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// An action is what a line says of a name; 0 is nothing.
type action uint8

const (
	allow action = iota + 1
	deny
)

// names are the lines allow and deny of one group.
type names map[wire.Name]nameLines

// nameLines are the actions of a name itself, and of all names below it.
type nameLines struct{ own, below action }

// find returns the action of the longest line that has a name, in wire form and in lower case, and the
// name of the line without its *; 0 and nil if there is none.
func (n names) find(name []byte) (a action, line []byte) {
	if len(n) == 0 || len(name) == 0 {
		return 0, nil
	}
	if a = n[wire.Name(name)].own; a != 0 {
		return a, name
	}
	for rest := name; rest[0] != 0; {
		rest = rest[1+rest[0]:]
		if a = n[wire.Name(rest)].below; a != 0 {
			return a, rest
		}
	}
	if a = n[wire.Root].below; a != 0 { // the name is the root, which * has
		return a, name
	}
	return 0, nil
}

// A pattern selects namespaces: a name, or the beginning of names before a final *.
type pattern string

func (p pattern) matches(namespace string) bool {
	if prefix, some := strings.CutSuffix(string(p), "*"); some {
		return strings.HasPrefix(namespace, prefix)
	}
	return string(p) == namespace
}

func anyMatches[S ~string | ~[]byte](ps []pattern, namespace S) bool {
	for _, p := range ps {
		if p.matches(string(namespace)) {
			return true
		}
	}
	return false
}

// A group is clients that are treated alike.
type group struct {
	name  string
	order int // among the groups
	audit bool

	// The clients: pods of namespaces, of all without one, whose labels match.
	namespaces []pattern
	pods       cluster.Selector
	isPods     bool              // the group selects pods
	labels     *cluster.Selector // of the namespaces; nil without namespace_labels
	labelText  string            // the same as text
	unknown    bool              // clients that are not known as pods

	names       names
	limitsSight bool      // services is given
	seesOwn     bool      // services own
	visible     []pattern // the other words of services
}

// selects reports whether pod, which may be nil, is in the group.
func (g *group) selects(pod *cluster.Pod) bool {
	if pod == nil {
		return g.unknown
	}
	return g.isPods && (len(g.namespaces) == 0 || anyMatches(g.namespaces, pod.Namespace)) && g.pods.Matches(pod.Labels)
}

// sees reports whether clients may resolve the names of a namespace.
func (g *group) sees(label []byte, pod *cluster.Pod) bool {
	return !g.limitsSight || g.seesOwn && pod != nil && string(label) == pod.Namespace ||
		anyMatches(g.visible, label)
}

// groups find the group of a client among thousands.
type groups struct {
	all     []*group
	unknown *group // of clients that are not known as pods
	// byNamespace has the groups whose namespaces have no *, and others the rest, both in order.
	byNamespace map[string][]*group
	others      []*group
	// labelled has the groups that select namespaces by labels, by the index of their selector.
	labelled   []*group
	namespaces *atomic.Pointer[namespaces] // of the cluster; nil in it before the start, and without such groups
}

func newGroups(all []*group) groups {
	gs := groups{all: all, byNamespace: map[string][]*group{}, namespaces: new(atomic.Pointer[namespaces])}
	for i, g := range all {
		g.order = i
		if g.unknown && gs.unknown == nil {
			gs.unknown = g
		}
		switch {
		case !g.isPods:
		case g.labels != nil:
			gs.labelled = append(gs.labelled, g)
		case g.isExact():
			for _, ns := range g.namespaces {
				gs.byNamespace[string(ns)] = append(gs.byNamespace[string(ns)], g)
			}
		default:
			gs.others = append(gs.others, g)
		}
	}
	return gs
}

// isExact reports whether the group selects namespaces by their whole names.
func (g *group) isExact() bool {
	for _, ns := range g.namespaces {
		if strings.HasSuffix(string(ns), "*") {
			return false
		}
	}
	return len(g.namespaces) > 0
}

// of returns the first group that selects pod, which is nil for a client that is not known as a pod;
// nil if there is none.
func (gs *groups) of(pod *cluster.Pod) *group {
	if pod == nil {
		return gs.unknown
	}

	first := firstOf(gs.byNamespace[pod.Namespace], pod, nil)
	first = firstOf(gs.others, pod, first)
	if len(gs.labelled) > 0 {
		for _, i := range gs.matches(pod.Namespace) {
			if g := gs.labelled[i]; first == nil || g.order < first.order {
				first = firstOf(gs.labelled[i:i+1], pod, first)
			}
		}
	}
	return first
}

// firstOf returns the first of some groups that selects pod, or before if that is a group that precedes it.
func firstOf(some []*group, pod *cluster.Pod, before *group) *group {
	for _, g := range some {
		if before != nil && before.order < g.order {
			return before
		}
		if g.selects(pod) {
			return g
		}
	}
	return before
}

// matches returns the indices of the groups that select a namespace by its labels.
func (gs *groups) matches(namespace string) []int32 {
	if known := gs.namespaces.Load(); known != nil {
		if m := known.find(namespace); m != nil {
			return m.groups
		}
	}
	return nil
}

// knows reports whether the labels of a namespace are known, if they are needed.
func (gs *groups) knows(namespace string) bool {
	known := gs.namespaces.Load()
	return known == nil && len(gs.labelled) == 0 || known != nil && known.find(namespace) != nil
}
