package records

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Delegations tell which namespaces' objects may name what. The longest delegated zone that a
// name is in decides, as at a zone cut.
type delegations struct {
	zones wire.ZoneMap[*delegation]
	// parents have a zone for each namespace, whose first label is the namespace.
	parents []wire.Name
	uses    []string // the options as text, which is equal for equal delegations
}

// A delegation is what the options say of one zone.
type delegation struct {
	everyone   bool
	namespaces []string
}

const (
	everyone = "*"
	// perNamespace begins a zone that each namespace has of its own.
	perNamespace = "{namespace}."
)

// add adds the option "delegate NAMESPACE ZONES...".
func (d *delegations) add(o corefile.Directive, within []wire.Name) error {
	namespace := o.Args[0].Text
	if namespace != everyone && !isNamespace(namespace) {
		return o.Args[0].Errorf(o.Path, "want the name of a namespace, or *, got %q", namespace)
	}
	for _, word := range o.Args[1:] {
		if err := d.addZones(o, word, namespace, within); err != nil {
			return err
		}
		d.uses = append(d.uses, namespace+" "+word.Text)
	}
	return nil
}

// addZones adds one argument, which may be a prefix that is several reverse zones.
func (d *delegations) addZones(o corefile.Directive, word corefile.Token, namespace string, within []wire.Name) error {
	parent, ofNamespaces := strings.CutPrefix(word.Text, perNamespace)
	if ofNamespaces && namespace != everyone {
		return word.Errorf(o.Path, "%s is for all namespaces: want delegate * %s", strings.TrimSuffix(perNamespace, "."), word.Text)
	}
	plain := word
	plain.Text = parent
	zones, err := config.ParseZones(o.Path, []corefile.Token{plain})
	if err != nil {
		return err
	}

	for _, zone := range zones {
		if !slices.ContainsFunc(within, zone.Within) {
			return word.Errorf(o.Path, "%s is not in %s", zone, join(within))
		}
		if ofNamespaces {
			d.parents = append(d.parents, zone)
			continue
		}
		one := d.zones.Get(zone)
		if one == nil {
			one = new(delegation)
			d.zones.Set(zone, one)
		}
		one.everyone = one.everyone || namespace == everyone
		one.namespaces = append(one.namespaces, namespace)
	}
	return nil
}

// isNamespace reports whether text can be the name of a namespace, a label of RFC 1123.
func isNamespace(text string) bool {
	inner := func(c rune) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' }
	return 0 < len(text) && len(text) <= wire.MaxLabel && text[0] != '-' && text[len(text)-1] != '-' &&
		!strings.ContainsFunc(text, func(c rune) bool { return !inner(c) })
}

// namespaces returns the namespaces that have zones of their own, sorted, or all if every
// namespace has some.
func (d *delegations) namespaces() (names []string, all bool) {
	for _, one := range d.zones.All() {
		all = all || one.everyone
		names = append(names, one.namespaces...)
	}
	slices.Sort(names)
	return slices.Compact(names), all || len(d.parents) > 0
}

// zoneOf returns the length of the longest delegated zone that contains a name, in wire form and
// in lower case, 0 if there is none. The zone is that of one, of the namespace own, or both.
func (d *delegations) zoneOf(name []byte) (length int, one *delegation, own []byte) {
	one, length = d.zones.LongestOf(name)
	for _, parent := range d.parents {
		label, size := labelBefore(name, parent)
		switch {
		case label == nil || size < length:
		case size > length:
			length, one, own = size, nil, label
		default:
			own = label
		}
	}
	return length, one, own
}

// labelBefore returns the label of name before parent, and the length of the zone that begins
// there; nil if name is not below parent.
func labelBefore(name []byte, parent wire.Name) (label []byte, size int) {
	if len(name) <= len(parent) || !bytes.HasSuffix(name, []byte(parent)) {
		return nil, 0
	}
	for rest := name; len(rest) > len(parent); rest = rest[1+rest[0]:] {
		if size = len(rest); size-1-int(rest[0]) == len(parent) {
			return rest[1 : 1+rest[0]], size
		}
	}
	return nil, 0 // the bytes of parent begin within a label
}

// check returns an error unless objects of a namespace may have records of an owner name.
func (d *delegations) check(namespace string, owner wire.Name) error {
	length, one, own := d.zoneOf([]byte(owner))
	switch {
	case length == 0:
		return fmt.Errorf("%s is in no zone that is delegated to namespace %s", owner, namespace)
	case string(own) == namespace, one != nil && (one.everyone || slices.Contains(one.namespaces, namespace)):
		return nil
	}
	return fmt.Errorf("%s is in %s, which is not delegated to namespace %s", owner, owner[len(owner)-length:], namespace)
}

// wildOf returns the entry of the longest wildcard of an object that matches the query name, and
// the number of the label at which the name after "*." begins. A wildcard above a delegated zone
// does not match in it.
func (x *objects) wildOf(q *dns.Query) (e *entry, at int) {
	if !x.hasWild.Load() {
		return nil, 0
	}
	length, _, _ := x.settings.rules.zoneOf(q.Name())
	if length == 0 {
		return nil, 0
	}
	last := q.Labels()
	for len(q.Name())-q.LabelOffset(last) < length {
		last--
	}
	return x.wild(q, last)
}
