package policy

import (
	"strings"
	"sync/atomic"

	"github.com/seamark/seamark/cluster"
)

// An action is what a line says of a name; 0 is nothing.
type action uint8

const (
	allow action = iota + 1
	deny
)

// find returns the action of the longest line that has a name, in wire form and in lower case, and the
// name of the line without its *; 0 and nil if there is none.
func (g *group) find(name []byte) (a action, line []byte) {
	g.names.walk(name, func(value int, of []byte) bool {
		a, line = action(value), of
		return false
	})
	return a, line
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

// A passed is the outcome of a query that a group does not deny.
type passed struct{ order int } // of the group, among all

// A group is clients that are treated alike.
type group struct {
	passed
	name  string
	audit bool

	// The clients: pods of namespaces, of all without one, whose labels match.
	namespaces []pattern
	pods       cluster.Selector
	isPods     bool              // the group selects pods
	labels     *cluster.Selector // of the namespaces; nil without namespace_labels
	labelText  string            // the same as text
	unknown    bool              // clients that are not known as pods

	names       names     // actions
	denies      bool      // a line denies a name
	limitsSight bool      // services is given
	seesOwn     bool      // services own
	visible     []pattern // the other words of services
}

// selects reports whether a pod is in the group, by its namespace's name and its own labels.
func (g *group) selects(pod *cluster.Pod) bool {
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

// of returns the first group that selects a pod, in a namespace that m matches; nil if there is none.
func (gs *groups) of(pod *cluster.Pod, m matched) *group {
	first := firstOf(gs.byNamespace[pod.Namespace], pod, nil)
	first = firstOf(gs.others, pod, first)
	for _, i := range m.groups {
		if first != nil && first.order < gs.labelled[i].order {
			break
		}
		first = firstOf(gs.labelled[i:i+1], pod, first)
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

// matched returns what matches a namespace by its labels. It reports false if these are needed, and are not known.
func (gs *groups) matched(namespace string) (m matched, known bool) {
	all := gs.namespaces.Load()
	if all == nil {
		return m, len(gs.labelled) == 0
	}
	if found := all.find(namespace); found != nil {
		return *found, true
	}
	return m, false
}
