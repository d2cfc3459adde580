package policy

import (
	"slices"

	"github.com/seamark/seamark/dns"
)

// GroupOf returns the name of the group that decides about a query, "" if there is none.
func (p *Policy) GroupOf(q *dns.Query) string {
	if g := p.clientOf(q).group; g != nil {
		return g.name
	}
	return ""
}

// HasGroup reports whether there is a group of that name.
func (p *Policy) HasGroup(name string) bool {
	return slices.ContainsFunc(p.groups.all, func(g *group) bool { return g.name == name })
}
