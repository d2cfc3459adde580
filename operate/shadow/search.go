package shadow

import (
	"net/netip"

	"github.com/seamark/seamark/operate/diff"
	"github.com/seamark/seamark/wire"
)

// maxSearches bounds the searches that are remembered.
const maxSearches = 1 << 16

// A search is a name that a client searches with the search domains of a pod.
type search struct {
	client netip.Addr
	base   string
}

// searches are the searches of a capture.
type searches map[search]bool

// made reports whether the name of p was made by a search. A name of two labels in front of
// svc was if the same client has searched for them with another search domain.
func (s searches) made(c *diff.Comparer, p *pair) bool {
	q, ok := question(p.query)
	if !ok {
		return false
	}
	base, certain := c.SearchBase(wire.Name(q[:len(q)-4]).String())
	if base == "" {
		return false
	}
	key := search{p.client.Addr(), base}
	if !certain {
		return s[key]
	}
	if len(s) >= maxSearches {
		clear(s)
	}
	s[key] = true
	return true
}
