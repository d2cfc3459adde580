package config

import (
	"slices"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// An Extent is the part of the namespace in which one use of a directive answers queries.
type Extent struct {
	Use   corefile.Directive
	Zones []wire.Name
	// Through is the option that lets queries pass to the directives below; nil if there is none.
	Through *Fallthrough
	Option  string // the name of that option
	// Open reports whether queries pass whatever Through is. ReversePasses reports whether those
	// for reverse names do.
	Open, ReversePasses bool
	// Together reports whether the longest zone of all uses decides which of them answers.
	Together bool
}

// Answers records where a use of the directive that is set up answers queries. check and plan
// report directives that no query can reach.
func (b *Block) Answers(e Extent) { b.extents = append(b.extents, e) }

// Extents returns the values passed to Answers, in the order of the chain.
func (b *Block) Extents() []Extent { return b.extents }

// Passes reports whether queries for some names in zone, which is in one of the zones of e, go to
// the directives below.
func (e Extent) Passes(zone wire.Name) bool {
	t := e.Through
	if e.Open || t == nil || !t.On {
		return e.Open
	}
	overlaps := func(z wire.Name) bool { return z.Within(zone) || zone.Within(z) }
	return len(t.Zones) == 0 || slices.ContainsFunc(t.Zones, overlaps)
}
