package config

import (
	"errors"
	"slices"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Once returns an error for every use of a directive but the first, for
// directives that a server block may contain once.
func Once(uses []corefile.Directive) error {
	var errs []error
	for _, d := range uses[min(1, len(uses)):] {
		errs = append(errs, d.Errorf("already given at %s:%d, and can be given once in a server block", uses[0].File, uses[0].Line))
	}
	return errors.Join(errs...)
}

// A Fallthrough is the value of the option "fallthrough [ZONES…]": if it is on,
// queries for names that do not exist go to the next handler. If there are zones,
// only queries for names within them do.
type Fallthrough struct {
	On    bool
	Zones []wire.Name // empty for every zone
}

// Option returns the option for a directive's list of options.
func (f *Fallthrough) Option() corefile.Option {
	return corefile.Option{Usage: "fallthrough [ZONES...]", Set: f.Parse}
}

// Parse parses the option.
func (f *Fallthrough) Parse(o corefile.Directive) (err error) {
	f.On = true
	f.Zones, err = ParseZones(o.Path, o.Args)
	return err
}

// Through reports whether queries for a name fall through. The name is in wire
// form and lower case.
func (f *Fallthrough) Through(name []byte) bool {
	if !f.On || len(f.Zones) == 0 {
		return f.On
	}
	return slices.ContainsFunc(f.Zones, func(zone wire.Name) bool { return wire.Within(name, zone) })
}

// A Describer is a handler with metadata about queries, under keys such as
// "kubernetes/namespace". Metadata must not block.
type Describer interface {
	Metadata(q *dns.Query, key string) (value string, ok bool)
}

// A scope selects the queries that have metadata. The directive metadata offers
// one.
type scope interface{ HasMetadata(name []byte) bool }

// UsesMetadata reports whether any query of the block has metadata. Call it in
// OnPlanned or later.
func (b *Block) UsesMetadata() bool { return len(Find[scope](b)) > 0 }

// Metadata returns a function that returns the value of a metadata key for a
// query. The value is "" if no handler knows the key, or if the directive
// metadata does not cover the query's name. Call it in OnPlanned or later.
func (b *Block) Metadata(key string) func(q *dns.Query) string {
	read := b.AnyMetadata()
	return func(q *dns.Query) string { return read(q, key) }
}

// AnyMetadata is like Metadata for a key that is known only with the query.
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
