package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/wire"
)

// nearestNamespace returns the name of a namespace with a similar name, or "".
func (e *explanation) nearestNamespace(name string) string {
	var all []string
	e.index.Lock()
	for label := range e.namespaces() {
		all = append(all, label[1:])
	}
	e.index.Unlock()

	slices.Sort(all)
	if near := corefile.Nearest(name, all); near != "" {
		return e.join(near)
	}
	return ""
}

// nearestService adds the names of Services that the client may have meant: the same name
// in other namespaces, a similar one in this, or the two labels in the other order. It
// reports whether there are any.
func (e *explanation) nearestService(name, namespace string) bool {
	before := len(e.causes)

	// The labels in front of the Service's name.
	front := ""
	for i := range max(0, e.depth-e.ownLabels()) {
		front += string(e.label(i)) + "."
	}

	var elsewhere, here []string
	e.index.Lock()
	for _, svc := range e.index.Entries(e.zone.multicluster) {
		if e.visible(svc) == nil {
			continue
		}
		switch key := svc.Key.ObjectKey(); {
		case key.Name == name && key.Namespace != namespace:
			elsewhere = append(elsewhere, key.Namespace)
		case key.Name == namespace && key.Namespace == name:
			c := e.add("%s and %s are in the wrong order: the Service's name comes first", name, namespace)
			c.Nearest = front + e.join(namespace, name)
		case key.Namespace == namespace:
			here = append(here, key.Name)
		}
	}
	e.index.Unlock()

	slices.Sort(here)
	slices.Sort(elsewhere)
	if len(elsewhere) > 0 {
		const shown = 3
		text := strings.Join(elsewhere[:min(shown, len(elsewhere))], ", ")
		if more := len(elsewhere) - shown; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		c := e.add("%s %s is in namespace %s", e.kind(), name, text)
		c.Nearest = front + e.join(name, elsewhere[0])
	}
	if near := corefile.Nearest(name, here); near != "" {
		c := e.add("namespace %s has a %s with a similar name, %s", namespace, e.kind(), near)
		c.Nearest = front + e.join(near, namespace)
	}
	return len(e.causes) > before
}

// search notes that a name looks like one outside of the cluster with a search domain of
// a pod appended, which a resolver tries before the name itself. The last suffix labels in
// front of the zone are of the search domain.
func (e *explanation) search(suffix int) {
	labels := e.depth - suffix
	if suffix == 1 && labels > 2 { // NAME.NAMESPACE.svc
		if e.index.Namespace([]byte(index.Label(string(e.label(labels-1))))) != nil {
			labels--
		}
	}
	if labels < 2 {
		return
	}

	name := wire.Name(string(e.q.Name()[:e.q.LabelOffset(labels)]) + "\x00")
	const format = "probably a pod searches for %s: " +
		"with the option ndots:5 of its resolv.conf the search domains are tried first"
	e.add(format, name)
}
