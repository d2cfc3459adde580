package dynupdate

import (
	"slices"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// A permission is one line allow.
type permission struct {
	key   wire.Name
	name  wire.Name   // "" for all names of the zone
	types []wire.Type // empty for all types
}

// addPermission adds a line allow. Its name may be @ or *, and its only type *.
func (o *options) addPermission(line corefile.Directive) error {
	var p permission
	var err error
	if p.key, err = wire.ParseName(line.Args[0].Text); err != nil || line.Args[0].Text == "*" || line.Args[0].Text == "@" {
		return line.Args[0].Errorf(line.Path, "want the name of a key of directive tsig, got %q", line.Args[0].Text)
	}

	switch name := line.Args[1]; name.Text {
	case "*":
	case "@":
		p.name = o.origin
	default:
		if p.name, err = wire.ParseName(name.Text); err != nil || !p.name.Within(o.origin) {
			return name.Errorf(line.Path, "want a name in zone %s, @ or *, got %q", o.origin, name.Text)
		}
	}

	for _, a := range line.Args[2:] {
		if a.Text == "*" && len(line.Args) == 3 {
			break
		}
		t, ok := wire.ParseType(a.Text)
		if !ok || t.IsMeta() && t != wire.TypeANY || derived(t) {
			return a.Errorf(line.Path, "want types that updates can change, ANY or a single *, got %q", a.Text)
		}
		p.types = append(p.types, t)
	}
	o.permissions = append(o.permissions, p)
	return nil
}

// hasKey reports whether a line allow has the key.
func (o *options) hasKey(key wire.Name) bool {
	return slices.ContainsFunc(o.permissions, func(p permission) bool { return p.key == key })
}

// allows reports whether a key may change records of a name and type.
func (o *options) allows(key, name wire.Name, t wire.Type) bool {
	return slices.ContainsFunc(o.permissions, func(p permission) bool {
		return p.key == key && (p.name == "" || p.name == name) && (p.types == nil || slices.Contains(p.types, t))
	})
}

// derived reports whether records of the type depend on others of the zone, from which this server
// does not make them again after an update: those of DNSSEC, old and new, and digests of zones.
func derived(t wire.Type) bool {
	const sig, key, nxt, talink, cds, cdnskey, zonemd, ta, dlv = 24, 25, 30, 58, 59, 60, 63, 32768, 32769
	switch t {
	case sig, key, nxt, talink, cds, cdnskey, zonemd, ta, dlv, wire.TypeDS, wire.TypeRRSIG, wire.TypeNSEC,
		wire.TypeDNSKEY, wire.TypeNSEC3, wire.TypeNSEC3PARAM:
		return true
	}
	return false
}
