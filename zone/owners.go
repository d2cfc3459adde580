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
		owners[i] = z.owner(k.n)
	}
	return owners
}

func (z *Zone) owner(n *node) Owner {
	by := z.hiddenBy(n)
	return Owner{string(z.appendName(nil, n)), by == n, by != nil && by != n, z, n}
}

// Owner returns the name with its records. ok is false if the zone has none of them. The name is in
// the zone, in lower case.
func (z *Zone) Owner(name wire.Name) (o Owner, ok bool) {
	n := z.names.get([]byte(name[:len(name)-len(z.origin)]))
	if n == nil || !n.hasSets() {
		return Owner{}, false
	}
	return z.owner(n), true
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
