package objects

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// Delegations tell which namespaces' objects may name what. The longest delegated zone that a
// name is in decides, as at a zone cut.
type Delegations struct {
	zones wire.ZoneMap[*delegation]
	// parents have a zone for each namespace, whose first label is the namespace.
	parents []wire.Name
	uses    []string // the options as text, which is equal for equal Delegations
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
func (d *Delegations) add(o corefile.Directive, within []wire.Name) error {
	namespace := o.Args[0].Text
	if namespace != everyone && !cluster.IsNamespaceName(namespace) {
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

// Option returns the option "delegate NAMESPACE ZONE...". Objects may have names in zones.
func (d *Delegations) Option(zones []wire.Name) corefile.Option {
	return corefile.Option{Usage: "delegate NAMESPACE ZONE...", Set: func(o corefile.Directive) error { return d.add(o, zones) }}
}

// Everyone delegates zones to every namespace if no zone is delegated to any.
func (d *Delegations) Everyone(zones []wire.Name) {
	if len(d.uses) > 0 {
		return
	}
	for _, zone := range zones {
		d.zones.Set(zone, &delegation{everyone: true})
		d.uses = append(d.uses, everyone+" "+string(zone))
	}
}

// IsEmpty reports whether no zone is delegated.
func (d *Delegations) IsEmpty() bool { return len(d.uses) == 0 }

// Text returns a text that is equal for equal Delegations.
func (d *Delegations) Text() string { return strings.Join(slices.Sorted(slices.Values(d.uses)), "\n") }

// addZones adds one argument, which may be a prefix that is several reverse zones.
func (d *Delegations) addZones(o corefile.Directive, word corefile.Token, namespace string, within []wire.Name) error {
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
			return word.Errorf(o.Path, "%s is not in %s", zone, wire.JoinNames(within, " or "))
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

// Zones returns the zones that are delegated, or below which each namespace has one, in no particular order.
func (d *Delegations) Zones() []wire.Name {
	all := slices.Clone(d.parents)
	for zone := range d.zones.All() {
		all = append(all, zone)
	}
	return all
}

// namespaces returns the namespaces that have zones of their own, sorted, or all if every
// namespace has some.
func (d *Delegations) namespaces() (names []string, all bool) {
	for _, one := range d.zones.All() {
		all = all || one.everyone
		names = append(names, one.namespaces...)
	}
	slices.Sort(names)
	return slices.Compact(names), all || len(d.parents) > 0
}

// ZoneOf returns the length of the longest delegated zone that contains a name, in wire form and in
// lower case, 0 if there is none.
func (d *Delegations) ZoneOf(name []byte) (length int) {
	length, _, _ = d.zoneOf(name)
	return length
}

// zoneOf is ZoneOf, and returns what the options say of the zone: it is that of one, of the namespace
// own, or both.
func (d *Delegations) zoneOf(name []byte) (length int, one *delegation, own []byte) {
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

// Check returns an error unless objects of a namespace may have a name.
func (d *Delegations) Check(namespace string, owner wire.Name) error {
	length, one, own := d.zoneOf([]byte(owner))
	switch {
	case length == 0:
		return fmt.Errorf("%s is in no zone that is delegated to namespace %s", owner, namespace)
	case string(own) == namespace, one != nil && (one.everyone || slices.Contains(one.namespaces, namespace)):
		return nil
	}
	return fmt.Errorf("%s is in %s, which is not delegated to namespace %s", owner, owner[len(owner)-length:], namespace)
}
