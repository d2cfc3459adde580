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

	zone *Zone
	node *node
}

// Owners returns the names that have records, in canonical order (RFC 4034 §6.1): the
// zone's own name is the first.
func (z *Zone) Owners() []Owner {
	type named struct {
		key string
		n   *node
	}
	var keys []named
	for n := range z.names.all {
		if n.hasSets() {
			keys = append(keys, named{string(appendCanonical(nil, z.appendLower(nil, n))), n})
		}
	}

	slices.SortFunc(keys, func(a, b named) int { return strings.Compare(a.key, b.key) })
	owners := make([]Owner, len(keys))
	for i, k := range keys {
		by := z.hiddenBy(k.n)
		owners[i] = Owner{string(z.appendName(nil, k.n)), by == k.n, by != nil && by != k.n, z, k.n}
	}
	return owners
}

// RRsets calls f with each RRset of the owner, in the order of their types. rdata is in
// wire form with uncompressed names.
func (o Owner) RRsets(f func(t wire.Type, ttl uint32, rdata []string)) {
	for rest := o.node.sets(); rest != ""; {
		var s set
		rest = s.read(o.node, rest)
		rdata := make([]string, 0, s.count)
		for records := s.records; records != ""; {
			var r stored
			r, records = nextRecord(records)
			rdata = append(rdata, string(o.zone.appendRData(nil, o.node, r)))
		}
		f(s.t, s.ttl, rdata)
	}
}
