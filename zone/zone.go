package zone

import "github.com/seamark/seamark/wire"

// A Zone is one authoritative zone. It is immutable: a Builder makes it, and its
// owner replaces it through an atomic pointer. Lookup is safe for concurrent use,
// takes no lock, and allocates nothing while the answer fits into its buffer, but for the
// additional sections that the zone keeps.
type Zone struct {
	origin    wire.Name
	apex      []byte // origin as bytes
	names     *names
	maxLabels int   // of all names
	negative  *node // the SOA record with the TTL of negative answers (RFC 2308 §5); nil without a SOA
	soa       set   // of negative
	serial    uint32
	nsecs     []string // names with an NSEC record, in canonical order: see appendCanonical; empty if the zone has none

	nsec3Names *names     // owners of NSEC3 records
	nsec3s     []string   // the hashes of the chain of NSEC3 records, in order; empty if the zone has none
	nsec3Param nsec3Param // of nsec3s

	additionals *additionals

	bytes  int // see Bytes
	memory int // of the nodes, about
}

// Origin returns the zone's name.
func (z *Zone) Origin() wire.Name { return z.origin }

// Serial returns the serial number of the zone's SOA record; ok is false if the
// zone has none.
func (z *Zone) Serial() (serial uint32, ok bool) { return z.serial, z.negative != nil }

// Bytes returns the size of all records in wire form, with names written out.
func (z *Zone) Bytes() int { return z.bytes }

// Memory returns about how many bytes of memory the zone has, with those that it shares with
// other versions.
func (z *Zone) Memory() int64 {
	const nameSize = 16 // of the sorted names of NSEC and NSEC3 records
	return int64(z.memory + max(minAdditionals, z.memory/additionalsPart) + nameSize*(len(z.nsecs)+len(z.nsec3s)))
}

// find returns the node of name, or its closest encloser (RFC 4592 §3.3.1) with
// exact false.
func (z *Zone) find(name []byte) (n *node, exact bool) {
	key := name[:len(name)-len(z.origin)]
	off := 0
	for skip := wire.Labels(name) - z.maxLabels; skip > 0; skip-- {
		off += int(name[off]) + 1
	}
	for {
		if n := z.names.get(key[off:]); n != nil {
			return n, off == 0
		}
		off += int(name[off]) + 1
	}
}

// parent returns the node above n, or nil at the apex.
func (z *Zone) parent(n *node) *node {
	var room [wire.MaxName]byte
	key := z.appendKey(room[:0], n)
	if len(key) == 0 {
		return nil
	}
	return z.names.get(key[1+key[0]:])
}

// hiddenBy returns the node whose delegation or DNAME record hides n: of all ancestors, and
// the node itself if it is a delegation, the one nearest to the apex. It returns nil if there
// is none.
func (z *Zone) hiddenBy(n *node) (by *node) {
	if n.is(isDelegation) {
		by = n
	}
	if n.meta&isHidden == 0 {
		return by
	}
	var room [wire.MaxName]byte
	for key := z.appendKey(room[:0], n); len(key) > 0; {
		key = key[1+key[0]:]
		if n := z.names.get(key); n.is(isDelegation | hasDNAME) {
			by = n
		}
	}
	return by
}

// isWildcard reports whether the first label of name is "*".
func isWildcard[N string | []byte](name N) bool {
	return len(name) > 1 && name[0] == 1 && name[1] == '*'
}
