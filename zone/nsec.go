package zone

import (
	"slices"
	"sort"

	"github.com/seamark/seamark/wire"
)

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

	// No wildcard applies either.
	if l.nameLen(n)+2 <= wire.MaxName {
		var room [wire.MaxName]byte
		l.cover(l.appendLower(append(room[:0], 1, '*'), n))
	}
}

// appendLower appends the name of n in lower case.
func (z *Zone) appendLower(buf []byte, n *node) []byte {
	return append(z.appendKey(buf, n), z.origin...)
}

// proveNoCloser adds the proof that no name is closer to name than the wildcard of n (RFC
// 4035 §3.1.3.3, RFC 5155 §7.2.6).
func (l *lookup) proveNoCloser(n *node, name []byte) {
	if !l.do {
		return
	}
	if len(l.nsec3s) > 0 {
		name = l.nextCloser(name, n)
	}
	l.cover(name)
}

// proveNoType adds the proof that n does not have the query type (RFC 4035 §3.1.3.1, RFC
// 5155 §7.2.3 to §7.2.5). n is the node of name if exact, or else the wildcard that
// applies to it, for which proveNoCloser has been called.
func (l *lookup) proveNoType(n *node, name []byte, exact bool) {
	switch {
	case !l.do:
	case len(l.nsec3s) == 0 && n.is(hasNSEC):
		l.addProof(n)
	case len(l.nsec3s) == 0: // n, which may be a wildcard, exists only through names below it
		var room [wire.MaxName]byte
		l.cover(l.appendLower(room[:0], n))
	case !exact:
		l.matchNSEC3(l.parent(n))
		l.matchNSEC3(n)
	case !l.matchNSEC3(n):
		if parent := l.parent(n); parent != nil {
			l.proveEncloser(parent, name)
		}
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
		l.addProof(l.nsec3Node(findNSEC(l.nsec3s, hash[:])))
	case len(l.nsecs) > 0:
		var room [2 * wire.MaxName]byte
		var low [wire.MaxName]byte
		found := appendFromCanonical(low[:0], findNSEC(l.nsecs, appendCanonical(room[:0], name)))
		l.addProof(l.names.get(found[:len(found)-len(l.origin)]))
	}
}

// findNSEC returns the last of keys that does not sort after key, or the last one if all
// do.
func findNSEC(keys []string, key []byte) string {
	after := sort.Search(len(keys), func(i int) bool { return keys[i] > string(key) })
	if after == 0 {
		after = len(keys)
	}
	return keys[after-1]
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

// appendFromCanonical appends the name that appendCanonical has made key from.
func appendFromCanonical(buf []byte, key string) []byte {
	at := len(buf)
	buf = append(buf, 0)
	for len(key) > 0 {
		var label [wire.MaxLabel + 1]byte
		n := 1
		for ; key[0] != 0; key = key[1:] {
			c := key[0]
			if c == 1 {
				key = key[1:]
				c = key[0] - 1
			}
			label[n] = c
			n++
		}
		key = key[1:]
		label[0] = byte(n - 1)
		buf = slices.Insert(buf, at, label[:n]...)
	}
	return buf
}

// sortNSEC sets z.nsecs.
func (z *Zone) sortNSEC() {
	z.nsecs = nil
	var room [wire.MaxName]byte
	for n := range z.names.all {
		if n.is(hasNSEC) && n.meta&isHidden == 0 {
			z.nsecs = append(z.nsecs, string(appendCanonical(nil, z.appendLower(room[:0], n))))
		}
	}
	slices.Sort(z.nsecs)
}
