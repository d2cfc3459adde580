package server

import (
	"fmt"
	"iter"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A barrier is a use of a directive that answers all queries that another one is for, or all but
// those for reverse names.
type barrier struct {
	config.Extent
	reverse bool
}

// String describes what the barrier means to the directives behind it, and the remedy.
func (b *barrier) String() string {
	at := fmt.Sprintf("%s on line %d", b.Use.Text, b.Use.Line)
	text := "never reached: " + at + " answers before it"
	if b.reverse {
		text = "reached by reverse names only: " + at + " answers all others"
	}
	if b.Option != "" {
		text += fmt.Sprintf(" (add %s to %s)", b.Option, b.Use.Text)
	}
	return text
}

// barriers finds the barriers of a server block.
type barriers struct {
	extents []config.Extent
	byZone  map[wire.Name][]int // indexes of extents
	// partly has, for directives whose longest zone answers, the zones with names that pass.
	partly map[string]map[wire.Name]bool
	// renames reports whether a directive of the block may change names, so that they leave its zones.
	renames bool
}

func newBarriers(b *config.Block) *barriers {
	r := &barriers{
		extents: b.Extents(), byZone: map[wire.Name][]int{}, partly: map[string]map[wire.Name]bool{},
		renames: corefile.IndexOf(b.Source.Directives, "rewrite", "autopath") >= 0,
	}
	for i, e := range r.extents {
		for _, zone := range e.Zones {
			r.byZone[zone] = append(r.byZone[zone], i)
			if !e.Together || !e.Passes(zone) {
				continue
			}

			open := r.partly[e.Use.Text]
			if open == nil {
				open = map[wire.Name]bool{}
				r.partly[e.Use.Text] = open
			}
			for z := range parents(zone) {
				open[z] = true
			}
		}
	}
	return r
}

// parents returns zone and the zones above it, up to the root.
func parents(zone wire.Name) iter.Seq[wire.Name] {
	return func(yield func(wire.Name) bool) {
		for yield(zone) && zone != wire.Root {
			zone = zone[1+zone[0]:]
		}
	}
}

// before returns the barrier among the first n extents for all names of a zone, or nil. directive is
// the one behind it.
func (r *barriers) before(n int, zone wire.Name, directive string) (found *barrier) {
	longer := map[string]bool{} // directives whose longer zone answers
	for z := range parents(zone) {
		for _, i := range r.byZone[z] {
			e := r.extents[i]
			name := e.Use.Text
			switch {
			case i >= n:
			case e.Together && (name == directive || longer[name] || r.partly[name][zone]):
			case e.Passes(zone), e.ReversePasses && wire.WithinReverse(zone):
			case e.ReversePasses && wire.InAddrArpa.Within(zone):
				if found == nil {
					found = &barrier{e, true}
				}
			default:
				return &barrier{Extent: e}
			}
			longer[name] = longer[name] || e.Together
		}
	}
	return found
}

// of returns the barrier before the uses of a directive, which answer in zones, for the queries of
// the block's zone within; nil if one of them is reached. concerned reports whether they answer such
// queries at all.
func (r *barriers) of(n int, zones []wire.Name, directive string, within wire.Name) (found *barrier, concerned bool) {
	reverse := false
	for _, zone := range zones {
		switch {
		case r.renames, zone.Within(within):
		case within.Within(zone):
			zone = within
		default:
			continue
		}

		concerned = true
		switch b := r.before(n, zone, directive); {
		case b == nil && wire.WithinReverse(zone):
			reverse = true // a directive such as hosts passes these names alone
		case b == nil:
			return nil, true
		case found == nil || b.reverse:
			found = b
		}
	}
	if found != nil {
		found.reverse = found.reverse || reverse
	}
	return found, concerned
}

// steps returns the barrier before each step of a chain, for the queries of one of its zones.
func (r *barriers) steps(steps []dns.Step, zone wire.Name) []*barrier {
	uses := map[string][]int{} // indexes of extents, by directive
	for i, e := range r.extents {
		uses[e.Use.Text] = append(uses[e.Use.Text], i)
	}
	count := map[string]int{}
	for _, s := range steps {
		count[s.Name]++
	}

	found := make([]*barrier, len(steps))
	passed := 0 // extents of the steps so far
	for i, s := range steps {
		own := uses[s.Name]
		switch {
		case len(own) == 0: // it may answer any name
			found[i], _ = r.of(passed, []wire.Name{wire.Root}, s.Name, zone)
			continue
		case len(own) == count[s.Name]: // each use is a step
			own, uses[s.Name] = own[:1], own[1:]
			count[s.Name]--
		}

		for _, at := range own {
			b, concerned := r.of(at, r.extents[at].Zones, s.Name, zone)
			if concerned && b == nil {
				found[i] = nil
				break
			}
			found[i] = b
		}
		passed = max(passed, own[len(own)-1]+1)
	}
	return found
}

// warnUnreached warns of uses of directives that no query of the block reaches: of a forward below
// hosts without fallthrough, above all.
func warnUnreached(b *config.Block) {
	r := newBarriers(b)
	for i, e := range r.extents {
		var found *barrier
		for _, zone := range slices.Compact(slices.Clone(b.Zones)) {
			at, concerned := r.of(i, e.Zones, e.Use.Text, zone)
			if concerned && at == nil {
				found = nil
				break
			}
			if found == nil {
				found = at
			}
		}
		if found != nil {
			b.Warn(e.Use.Errorf("%v", found))
		}
	}
}
