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

// A scope selects the queries that have metadata. The directive metadata offers
// one.
type scope interface{ HasMetadata(name []byte) bool }

// UsesMetadata reports whether any query of the block has metadata. Call it in
// OnPlanned or later.
func (b *Block) UsesMetadata() bool { return len(Find[scope](b)) > 0 }

// Metadata gives what reads a key of b's metadata for a query: "" if no handler
// knows it, or if the block has no metadata directive for the query's name. Call
// it in OnPlanned or later.
func (b *Block) Metadata(key string) func(q *dns.Query) string {
	read := b.AnyMetadata()
	return func(q *dns.Query) string { return read(q, key) }
}

// AnyMetadata is Metadata for whoever learns the key with the query.
func (b *Block) AnyMetadata() func(q *dns.Query, key string) string {
	from, scopes := Find[Describer](b), Find[scope](b)
	return func(q *dns.Query, key string) string {
		if !slices.ContainsFunc(scopes, func(s scope) bool { return s.HasMetadata(q.Name()) }) {
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
