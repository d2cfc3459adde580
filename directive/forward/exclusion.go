package forward

import (
	"slices"
	"strings"
)

// An exclusion is the upstreams that one forward does not ask: those that loop
// has found to lead back here. It does not change.
type exclusion struct {
	names []string
	id    string // equal for equal exclusions
}

func (e *exclusion) has(name string) bool {
	return len(e.names) > 0 && slices.Contains(e.names, name)
}

// with is e with name, or without it.
func (e *exclusion) with(name string, out bool) *exclusion {
	names := slices.DeleteFunc(slices.Clone(e.names), func(n string) bool { return n == name })
	if out {
		names = append(names, name)
	}
	slices.Sort(names)
	return &exclusion{names, strings.Join(names, " ")}
}
