package zone

import "github.com/seamark/seamark/wire"

// A Zone is one authoritative zone. It is immutable: a Builder makes it, and its
// owner replaces it through an atomic pointer. Lookup is safe for concurrent use,
// takes no lock, and allocates nothing while the answer fits into its buffer.
type Zone struct {
	origin   wire.Name
	apex     []byte           // origin as bytes
	nodes    map[string]*node // by name in wire form, lower case
	deepest  int              // labels of the longest name
	negative *rrset           // the SOA record with the TTL of negative answers (RFC 2308 §5); nil without a SOA
	serial   uint32
	nsecs    []nsecNode // names with an NSEC record, in canonical order; empty if the zone has none

	nsec3Nodes map[string]*node // NSEC3 records, by hash; names of other records are not hashed
	nsec3s     []nsecNode       // the chain of NSEC3 records, in the order of hashes; empty if the zone has none
	nsec3Param nsec3Param       // of nsec3s
}

// A node is a name that exists: it has records, or a name below it has (RFC
// 4592 §2.2.2).
type node struct {
	name     []byte // in wire form, with the zone file's spelling
	parent   *node  // nil at the apex
	sets     []rrset
	wildcard *node // the child named "*", or nil
	// isDelegation reports whether the node is a zone cut. NS records at a wildcard are
	// ordinary records here; RFC 4592 §4.2 leaves their meaning open.
	isDelegation bool
	hasDNAME     bool
	// hiddenBy is the node whose delegation or DNAME record hides this one: of all
	// ancestors, and the node itself if it is a delegation, the one nearest to the
	// apex.
	hiddenBy *node
}

// An rrset is the records of one type at a node, and their signatures. The
// records are in the form of package wire's answers, with the query name as
// owner.
type rrset struct {
	t       wire.Type
	n       int
	records []byte
	nSigs   int
	sigs    []byte
	targets []*node // nodes with addresses that the RDATA names, for the additional section
}

// Origin returns the zone's name.
func (z *Zone) Origin() wire.Name { return z.origin }

// Serial returns the serial number of the zone's SOA record; ok is false if the
// zone has none.
func (z *Zone) Serial() (serial uint32, ok bool) { return z.serial, z.negative != nil }

// find returns the node of name, or its closest encloser (RFC 4592 §3.3.1) with
// exact false.
func (z *Zone) find(name []byte) (n *node, exact bool) {
	off := 0
	for skip := countLabels(name) - z.deepest; skip > 0; skip-- {
		off += int(name[off]) + 1
	}
	for {
		if n := z.nodes[string(name[off:])]; n != nil {
			return n, off == 0
		}
		off += int(name[off]) + 1
	}
}

// get returns the node's RRset of type t, or nil. sets is sorted by type.
func (n *node) get(t wire.Type) *rrset {
	if i, ok := n.search(t); ok {
		return &n.sets[i]
	}
	return nil
}

// search returns the position of the RRset of type t in n.sets.
func (n *node) search(t wire.Type) (i int, ok bool) {
	i, end := 0, len(n.sets) // package slices would copy RRsets
	for i < end {
		if middle := int(uint(i+end) / 2); n.sets[middle].t < t {
			i = middle + 1
		} else {
			end = middle
		}
	}
	return i, i < len(n.sets) && n.sets[i].t == t
}

// countLabels returns the number of labels of a name in wire form.
func countLabels(name []byte) (n int) {
	for i := 0; name[i] != 0; i += int(name[i]) + 1 {
		n++
	}
	return n
}

// isWildcard reports whether the first label of name is "*".
func isWildcard(name []byte) bool { return name[0] == 1 && name[1] == '*' }
