package cache

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A way is how the answers to names in a zone are got: by what stands below cache,
// word for word, as far as it is asked for such names.
type way struct {
	zone   wire.Name // "" is all that are in no other way's
	labels int
	ids    []uint64 // of the steps below cache: the first is the one right below
}

// ways are a block's, the longest zone first.
type ways []way

// of gives the id of the way on which the one who stands below steps further down
// answers q. Ids of other plans are equal if the ways are.
func (ws ways) of(q *dns.Query, below int) uint64 {
	w := &ws[len(ws)-1]
	for i := range ws[:len(ws)-1] {
		if at := q.Labels() - ws[i].labels; at >= 0 && string(q.Name()[q.Offset(at):]) == string(ws[i].zone) {
			w = &ws[i]
			break
		}
	}
	return w.ids[max(below-1, 0)]
}

// A choosy handler is asked for names in some zones alone, and has no part in how
// others are answered.
type choosy interface{ Zones() []wire.Name }

// A place is a step below cache: what made it, and for which names.
type place struct {
	text  string
	zones []wire.Name // nil is all
}

// concerns says whether the step is asked for the names in zone, and in no longer
// one that a way is for.
func (p *place) concerns(zone wire.Name) bool {
	return p.zones == nil || slices.ContainsFunc(p.zones, func(z wire.Name) bool {
		return z == wire.Root || zone != "" && zone.Within(z)
	})
}

// waysOf reads them from a block whose cache is step at of its chain.
func waysOf(b *config.Block, at int, seed maphash.Seed) ways {
	places := placesOf(b, at)
	zones := []wire.Name{""}
	for _, p := range places {
		for _, z := range p.zones {
			if z != wire.Root && !slices.Contains(zones, z) {
				zones = append(zones, z)
			}
		}
	}
	slices.SortStableFunc(zones, func(a, b wire.Name) int { return len(b) - len(a) })
	var all ways
	for _, zone := range zones {
		var text strings.Builder
		fmt.Fprintf(&text, "%q\n", string(zone))
		for _, p := range places {
			if p.concerns(zone) {
				text.WriteString(p.text + "\n")
			}
		}
		w := way{zone: zone}
		if zone != "" {
			w.labels = zone.Labels()
		}
		nth := 0
		for _, p := range places {
			if p.concerns(zone) {
				nth++
			}
			w.ids = append(w.ids, maphash.String(seed, strconv.Itoa(nth)+"\n"+text.String()))
		}
		all = append(all, w)
	}
	return all
}

// placesOf lists the steps below cache; there is one at least.
func placesOf(b *config.Block, at int) []place {
	texts := map[string][]string{} // by word
	for _, d := range b.Source.Directives {
		texts[d.Text] = append(texts[d.Text], textOf(d))
	}
	zoned := map[string][]choosy{}
	for _, h := range config.Find[choosy](b) {
		zoned[b.NameOf(h)] = append(zoned[b.NameOf(h)], h)
	}
	var places []place
	nth := map[string]int{}
	for _, s := range b.Chain.Steps()[at+1:] {
		i := nth[s.Name]
		nth[s.Name]++
		p := place{text: strings.Join(texts[s.Name], "\n")}
		if n := len(zoned[s.Name]); n > 0 && n == len(texts[s.Name]) && i < n {
			p = place{texts[s.Name][i], zoned[s.Name][i].Zones()}
		}
		places = append(places, p)
	}
	return append(places, place{}) // so that there is a way, whoever answers
}

// textOf is a directive without its place.
func textOf(d corefile.Directive) string {
	var text strings.Builder
	var write func(d corefile.Directive)
	write = func(d corefile.Directive) {
		text.WriteString(strconv.Quote(d.Text))
		for _, a := range d.Args {
			text.WriteString(" " + strconv.Quote(a.Text))
		}
		text.WriteString("{")
		for _, o := range d.Body {
			write(o)
		}
		text.WriteString("}")
	}
	write(d)
	return text.String()
}
