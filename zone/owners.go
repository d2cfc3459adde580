package zone

import (
	"slices"
	"strings"

	"github.com/seamark/seamark/wire"
)

// An Owner is a name of a zone that has records.
type Owner struct {
	Name string // in wire form, with the zone file's spelling
	// Delegated reports whether the zone delegates the name: only its DS records are
	// authoritative.
	Delegated bool
	// Hidden reports whether a delegation or a DNAME record above hides the name: none of
	// its records is authoritative.
	Hidden bool

	node *node
}

// Owners returns the names that have records, in canonical order (RFC 4034 §6.1): the
// zone's own name is the first.
func (z *Zone) Owners() []Owner {
	var keys []nsecNode
	for name, n := range z.nodes {
		if len(n.sets) > 0 {
			keys = append(keys, nsecNode{string(appendCanonical(nil, []byte(name))), n})
		}
	}
	slices.SortFunc(keys, func(a, b nsecNode) int { return strings.Compare(a.key, b.key) })
	owners := make([]Owner, len(keys))
	for i, k := range keys {
		n := k.node
		owners[i] = Owner{string(n.name), n.hiddenBy == n, n.hiddenBy != nil && n.hiddenBy != n, n}
	}
	return owners
}

// RRsets calls f with each RRset of the owner, in the order of their types. rdata is in
// wire form with uncompressed names.
func (o Owner) RRsets(f func(t wire.Type, ttl uint32, rdata []string)) {
	for i := range o.node.sets {
		s := &o.node.sets[i]
		rdata := make([]string, 0, s.n)
		eachRecord(s.records, func(r wire.Record) { rdata = append(rdata, string(s.records[r.RData:r.Next])) })
		f(s.t, s.ttl(), rdata)
	}
}
