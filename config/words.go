package config

import (
	"errors"
	"slices"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Once is for directives that may stand once in a server block: an error for
// every use but the first.
func Once(uses []corefile.Directive) error {
	var errs []error
	for _, d := range uses[min(1, len(uses)):] {
		errs = append(errs, d.Errorf("already given at %s:%d, and can be given once in a server block", uses[0].File, uses[0].Line))
	}
	return errors.Join(errs...)
}

// Before puts ds in front of the directive called name in all, so that a
// query meets them first. It panics if there is none of that name: the program
// is wrong then, and not its input.
func Before(all []Directive, name string, ds ...Directive) []Directive {
	i := slices.IndexFunc(all, func(d Directive) bool { return d.Name == name })
	if i < 0 {
		panic("config: no directive " + name + " to put another before")
	}
	return slices.Insert(slices.Clone(all), i, ds...)
}

// A Fallthrough is a set of zones that may be off altogether, as the option
// "fallthrough [ZONES…]" gives it: names that do not exist are asked of the
// handler below, those within the zones only if any are given.
type Fallthrough struct {
	On    bool
	Zones []wire.Name // none is every zone
}

// Option is the option as a directive lists it.
func (f *Fallthrough) Option() corefile.Option {
	return corefile.Option{Name: "fallthrough", Max: -1, Set: f.Parse}
}

// Parse reads the option.
func (f *Fallthrough) Parse(o corefile.Directive) (err error) {
	f.On = true
	f.Zones, err = ParseZones(o.Path, o.Args)
	return err
}

// Through says whether a name, in wire form and lower case, falls through.
func (f *Fallthrough) Through(name []byte) bool {
	if !f.On || len(f.Zones) == 0 {
		return f.On
	}
	return slices.ContainsFunc(f.Zones, func(zone wire.Name) bool { return wire.Within(name, zone) })
}

// A Describer is a handler that knows something of a query under names of its
// own: what the metadata directive makes known to others ("kubernetes/namespace").
// It must not block.
type Describer interface {
	Metadata(q *dns.Query, key string) (value string, ok bool)
}

// Metadata gives what reads a key of b's metadata for a query: "" if no handler
// knows it, or if the block has no metadata directive for the query's name. Call
// it in OnPlanned or later.
func (b *Block) Metadata(key string) func(q *dns.Query) string {
	read := b.AnyMetadata()
	return func(q *dns.Query) string { return read(q, key) }
}

// AnyMetadata is Metadata for whoever learns the key with the query.
func (b *Block) AnyMetadata() func(q *dns.Query, key string) string {
	from := Find[Describer](b)
	return func(q *dns.Query, key string) string {
		if !b.Described.Through(q.Name()) {
			return ""
		}
		for _, d := range from {
			if value, ok := d.Metadata(q, key); ok {
				return value
			}
		}
		return ""
	}
}
