package zone

import (
	"slices"
	"strings"

	"github.com/seamark/seamark/wire"
)

// An nsecNode is a node with an NSEC record.
type nsecNode struct {
	key  string // the name in canonical order: see appendCanonical
	node *node
}

// proveNoName adds the proof that a name with the closest encloser n does not exist (RFC
// 4035 §3.1.3.2, RFC 5155 §7.2.2).
func (l *lookup) proveNoName(n *node, name []byte) {
	if !l.do {
		return
	}
	if len(l.nsec3s) > 0 {
		n = l.proveEncloser(n, name)
	} else {
		l.cover(name)
	}
	if len(n.name)+2 <= wire.MaxName {
		var room [wire.MaxName]byte
		l.cover(wire.AppendLower(append(room[:0], 1, '*'), n.name))
	}
}

// proveNoCloser adds the proof that no name is closer to name than the wildcard n, which
// has answered (RFC 4035 §3.1.3.3, RFC 5155 §7.2.6).
func (l *lookup) proveNoCloser(n *node, name []byte) {
	if len(l.nsec3s) > 0 {
		name = nextCloser(name, n.parent)
	}
	l.cover(name)
}

// proveNoType adds the proof that n does not have the query type (RFC 4035 §3.1.3.1, RFC
// 5155 §7.2.3 to §7.2.5). n is the node of name if exact, or else the wildcard that
// applies to it, for which proveNoCloser has been called.
func (l *lookup) proveNoType(n *node, name []byte, exact bool) {
	switch {
	case !l.do:
	case len(l.nsec3s) == 0:
		l.prove(n, name)
	case !exact:
		l.matchNSEC3(n.parent)
		l.matchNSEC3(n)
	case !l.matchNSEC3(n) && n.parent != nil:
		l.proveEncloser(n.parent, name)
	}
}

// proveUnsigned adds the proof that the delegation n has no DS records (RFC 4035 §3.1.4,
// RFC 5155 §7.2.7).
func (l *lookup) proveUnsigned(n *node) {
	var low [wire.MaxName]byte
	l.proveNoType(n, wire.AppendLower(low[:0], n.name), true)
}

// prove adds the NSEC record of n. If n has none, because it exists only through names
// below it, prove adds the one that covers name.
func (l *lookup) prove(n *node, name []byte) {
	if n.get(wire.TypeNSEC) != nil {
		l.addProof(n)
	} else {
		l.cover(name)
	}
}

// addProof adds the NSEC or NSEC3 record of n to the authority section.
func (l *lookup) addProof(n *node) {
	if !slices.Contains(l.proofs[:l.nProofs], n) && l.nProofs < len(l.proofs) {
		l.proofs[l.nProofs] = n
		l.nProofs++
	}
}

// cover adds the NSEC or NSEC3 record that matches or covers name, which is in lower
// case, if the client set DO.
func (l *lookup) cover(name []byte) {
	switch {
	case !l.do:
	case len(l.nsec3s) > 0:
		hash := l.nsec3Param.hash(name)
		l.addProof(findNSEC(l.nsec3s, hash[:]).node)
	case len(l.nsecs) > 0:
		var room [2 * wire.MaxName]byte
		l.addProof(findNSEC(l.nsecs, appendCanonical(room[:0], name)).node)
	}
}

// findNSEC returns the last of nodes that does not sort after key, or the last one if all
// do.
func findNSEC(nodes []nsecNode, key []byte) nsecNode {
	low, high := 0, len(nodes)
	for low < high {
		if middle := (low + high) / 2; nodes[middle].key <= string(key) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == 0 {
		low = len(nodes)
	}
	return nodes[low-1]
}

// appendCanonical appends a name in lower case to buf so that the results compare
// as bytes in the canonical order of names (RFC 4034 §6.1): the labels from right
// to left, each followed by a byte that is less than any byte of a label.
func appendCanonical(buf, name []byte) []byte {
	var starts [wire.MaxLabels]uint8
	n := 0
	for i := 0; name[i] != 0; i += int(name[i]) + 1 {
		starts[n] = uint8(i)
		n++
	}
	for n--; n >= 0; n-- {
		at := int(starts[n])
		for _, c := range name[at+1 : at+1+int(name[at])] {
			if c <= 1 {
				buf = append(buf, 1)
				c++
			}
			buf = append(buf, c)
		}
		buf = append(buf, 0)
	}
	return buf
}

// sortNSEC sets z.nsecs.
func (z *Zone) sortNSEC() {
	for name, n := range z.nodes {
		if n.get(wire.TypeNSEC) != nil && (n.hiddenBy == nil || n.hiddenBy == n) {
			z.nsecs = append(z.nsecs, nsecNode{string(appendCanonical(nil, []byte(name))), n})
		}
	}
	slices.SortFunc(z.nsecs, func(a, b nsecNode) int { return strings.Compare(a.key, b.key) })
}
