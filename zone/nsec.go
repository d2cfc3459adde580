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

// prove adds the NSEC record of n to the authority section if the client set DO
// (RFC 4035 §3.1.3). If n has none, because it exists only through names below
// it, prove adds the NSEC record that covers it.
func (l *lookup) prove(n *node) {
	if !l.do || len(l.nsecs) == 0 {
		return
	}
	if n.get(wire.TypeNSEC) == nil {
		var low [wire.MaxName]byte
		l.cover(wire.AppendLower(low[:0], n.name))
		return
	}
	if !slices.Contains(l.proofs[:l.nProofs], n) && l.nProofs < len(l.proofs) {
		l.proofs[l.nProofs] = n
		l.nProofs++
	}
}

// cover adds the NSEC record that matches or covers name, which is in lower case.
func (l *lookup) cover(name []byte) {
	if !l.do || len(l.nsecs) == 0 {
		return
	}
	var room [2 * wire.MaxName]byte
	key := appendCanonical(room[:0], name)
	// The last node that does not sort after name. The apex sorts first.
	low, high := 0, len(l.nsecs)
	for high-low > 1 {
		if middle := (low + high) / 2; l.nsecs[middle].key <= string(key) {
			low = middle
		} else {
			high = middle
		}
	}
	l.prove(l.nsecs[low].node)
}

// coverWildcard adds the NSEC record that proves that there is no wildcard below
// n.
func (l *lookup) coverWildcard(n *node) {
	if !l.do || len(l.nsecs) == 0 || len(n.name)+2 > wire.MaxName {
		return
	}
	var room [wire.MaxName]byte
	l.cover(wire.AppendLower(append(room[:0], 1, '*'), n.name))
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
