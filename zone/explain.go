package zone

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/wire"
)

// maxCompared is the number of names that Explain compares with one that does not exist.
const maxCompared = 20_000

// Explain returns sentences about how the zone has a name, which must be in it, and
// records of a type: the closest encloser, the wildcard, the delegation or the DNAME
// record that decides the answer. The last one has the zone's serial number. If the name
// does not exist, near is the name that nearest chooses among the names that could be in its
// place, or "".
func (z *Zone) Explain(
	name []byte, t wire.Type, nearest func(label string, known []string) string,
) (texts []string, near wire.Name) {
	add := func(format string, args ...any) { texts = append(texts, fmt.Sprintf(format, args...)) }

	n, exact := z.find(name)
	stop := z.stop(n, exact)
	switch {
	case t == wire.TypeAXFR || t == wire.TypeIXFR:
		add("zone transfers need the directive transfer, which permits them to some clients")
	case stop != nil && stop.is(isDelegation) && !(exact && n == stop && t == wire.TypeDS):
		add("the name is at or below the delegation of %s, so the answer is a referral", z.nameOf(stop))
	case stop != nil && !stop.is(isDelegation):
		add("the name is below %s, whose DNAME record applies", z.nameOf(stop))
	case exact:
		add("%s", n.describe("the name", t))
	default:
		if wildcard := z.names.wildcard(n); wildcard != nil {
			add("the name does not exist, and the wildcard %s applies: %s",
				z.nameOf(wildcard), wildcard.describe("it", t))
		} else {
			add("the name does not exist")
			near = z.nearest(n, name, nearest)
		}
		add("its closest encloser is %s", z.nameOf(n))
	}

	serial := "no serial number"
	if number, ok := z.Serial(); ok {
		serial = fmt.Sprintf("serial number %d", number)
	}
	add("zone %s has %s", z.origin, serial)
	return texts, near
}

// Metadata returns the value of a key of metadata for a name, which must be in the zone. The only key is
// "zone/wildcard": the wildcard from which the zone answers.
func (z *Zone) Metadata(name []byte, key string) (value string, ok bool) {
	if key != "zone/wildcard" {
		return "", false
	}
	n, exact := z.find(name)
	if exact || z.stop(n, exact) != nil {
		return "", false
	}
	wildcard := z.names.wildcard(n)
	if wildcard == nil {
		return "", false
	}
	return z.nameOf(wildcard).String(), true
}

// nearest returns the child of n, the closest encloser of name, that the function chooses.
func (z *Zone) nearest(n *node, name []byte, nearest func(string, []string) string) wire.Name {
	encloser := z.appendKey(nil, n)
	var labels []string
	var key []byte
	compared := 0
	z.names.all(func(child *node) bool {
		key = z.appendKey(key[:0], child)
		if len(key) > 0 && string(key[1+key[0]:]) == string(encloser) {
			labels = append(labels, string(key[1:1+key[0]]))
		}
		compared++
		return compared < maxCompared
	})

	slices.Sort(labels)
	own := name[:len(name)-z.nameLen(n)] // the labels in front of the encloser
	for len(own) > 1+int(own[0]) {
		own = own[1+own[0]:]
	}

	near := nearest(string(own[1:]), labels)
	if near == "" {
		return ""
	}
	return wire.Name(z.appendName(wire.AppendLabel(nil, near), n))
}

// nameOf returns the name of n.
func (z *Zone) nameOf(n *node) wire.Name { return wire.Name(z.appendName(nil, n)) }

// describe describes the types of n for a query of type t. subject is the name of n.
func (n *node) describe(subject string, t wire.Type) string {
	var types []string
	has, alias := false, false
	for rest := n.sets(); rest != ""; {
		var s set
		rest = s.read(n, rest)
		types = append(types, s.t.String())
		has = has || s.t == t || t == wire.TypeRRSIG && s.sigCount > 0
		alias = alias || s.t == wire.TypeCNAME && t != wire.TypeRRSIG
	}

	switch {
	case types == nil:
		return subject + " has no records, only names below it (empty non-terminal)"
	case has || t == wire.TypeANY:
		return subject + " has " + t.String() + " records"
	case alias:
		return subject + " is an alias (CNAME)"
	}
	return fmt.Sprintf("%s has no %s records, only %s", subject, t, strings.Join(types, ", "))
}
