package forward

import (
	"slices"
	"strings"
)

// An exclusion is the set of upstreams that one forward must not query, because the
// directive loop has found that they forward to this server. It is immutable.
type exclusion struct {
	names []string
	id    string // equal for equal exclusions
}

func (e *exclusion) has(name string) bool {
	return len(e.names) > 0 && slices.Contains(e.names, name)
}

// with returns a copy of e that excludes name, or does not exclude it.
func (e *exclusion) with(name string, exclude bool) *exclusion {
	names := slices.DeleteFunc(slices.Clone(e.names), func(n string) bool { return n == name })
	if exclude {
		names = append(names, name)
	}
	slices.Sort(names)
	return &exclusion{names, strings.Join(names, " ")}
}
