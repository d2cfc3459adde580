package zone

import (
	"slices"
	"strings"

	"github.com/seamark/seamark/wire"
)

// A link is one name of the chain of NSEC records.
type link struct {
	key  string // see appendKey
	node *node
}

// prove adds the NSEC record of n to what is shown to a client that asks for
// proof (RFC 4035 §3.1.3). A name without one is between two that have one.
func (l *lookup) prove(n *node) {
	if !l.do || len(l.chain) == 0 {
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

// cover proves what there is at name, in lower case, or that it does not exist.
func (l *lookup) cover(name []byte) {
	if !l.do || len(l.chain) == 0 {
		return
	}
	var room [2 * wire.MaxName]byte
	key := appendKey(room[:0], name)
	// The last that does not stand behind name. Nothing is before the apex.
	low, high := 0, len(l.chain)
	for high-low > 1 {
		if middle := (low + high) / 2; l.chain[middle].key <= string(key) {
			low = middle
		} else {
			high = middle
		}
	}
	l.prove(l.chain[low].node)
}

// coverWildcard proves that there is no wildcard below n.
func (l *lookup) coverWildcard(n *node) {
	if !l.do || len(l.chain) == 0 || len(n.name)+2 > wire.MaxName {
		return
	}
	var room [wire.MaxName]byte
	l.cover(wire.AppendLower(append(room[:0], 1, '*'), n.name))
}

// appendKey writes, behind buf, a name in lower case so that keys as bytes have
// the canonical order of names (RFC 4034 §6.1): the labels from the right, each
// with an end that is less than any byte in it.
func appendKey(buf, name []byte) []byte {
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

// link puts the names that have an NSEC record in order.
func (z *Zone) link() {
	for name, n := range z.nodes {
		if n.get(wire.TypeNSEC) != nil && (n.stop == nil || n.stop == n) {
			z.chain = append(z.chain, link{string(appendKey(nil, []byte(name))), n})
		}
	}
	slices.SortFunc(z.chain, func(a, b link) int { return strings.Compare(a.key, b.key) })
}
