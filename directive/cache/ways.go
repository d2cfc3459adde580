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

// A way is how the answers to some names are got: by what stands below cache, word
// for word, as far as it has a part in them. It is a hash of that. The ways of a
// block are by zones; those of two plans are equal if the answers come alike.
type ways struct {
	zones   map[wire.Name]uint64 // the way of the names in a zone and in no longer one
	deepest int                  // labels of the longest
	rest    uint64               // that of all others
	steps   []uint32             // who answers on it: a hash for each step below cache, and one for nobody
}

// of gives the way of q, and a hash of the one who stands below steps further down.
func (ws *ways) of(q *dns.Query, below int) (way uint64, step uint32) {
	way, step = ws.rest, ws.steps[max(below-1, 0)]
	if ws.deepest == 0 {
		return way, step
	}
	name, labels := q.Name(), q.Labels()
	for i := max(0, labels-ws.deepest); i < labels; i++ {
		if w, ok := ws.zones[wire.Name(name[q.LabelOffset(i):])]; ok {
			return w, step
		}
	}
	return way, step
}

// all gives each of them once or more.
func (ws *ways) all() []uint64 {
	all := []uint64{ws.rest}
	for _, w := range ws.zones {
		all = append(all, w)
	}
	return all
}

// A choosy handler is asked for names in some zones alone, and has no part in how
// others are answered.
type choosy interface{ Zones() []wire.Name }

// A sharing handler has the same part in how names are answered that are in one of
// its Shares and in no longer one: Share tells it from others. The zone "" is that of
// the names in none.
type sharing interface {
	Shares() []wire.Name
	Share(zone wire.Name) string
}

// waysOf reads them from a block whose cache is step at of its chain.
func waysOf(b *config.Block, at int, seed maphash.Seed) ways {
	r := readerOf(b, at, seed)
	ws := ways{zones: map[wire.Name]uint64{}, rest: r.way(""), steps: r.steps}
	for zone := range r.choosy {
		ws.zones[zone] = 0
	}
	for _, s := range r.sharing {
		for _, zone := range s.Shares() {
			ws.zones[zone] = 0
		}
	}
	delete(ws.zones, wire.Root)
	for zone := range ws.zones {
		ws.zones[zone] = r.way(zone)
		ws.deepest = max(ws.deepest, zone.Labels())
	}
	return ws
}

// A wayReader is what a block's ways are made of.
type wayReader struct {
	seed    maphash.Seed
	common  string // what all names are asked of
	sharing []sharing
	choosy  map[wire.Name][]int // by zone, in texts
	texts   []string            // of choosy handlers, in order
	steps   []uint32
}

func readerOf(b *config.Block, at int, seed maphash.Seed) *wayReader {
	r := &wayReader{seed: seed, choosy: map[wire.Name][]int{}}
	texts := map[string][]string{} // by word
	for _, d := range b.Source.Directives {
		texts[d.Text] = append(texts[d.Text], textOf(d))
	}
	zoned := map[string][]choosy{}
	for _, h := range config.Find[choosy](b) {
		zoned[b.NameOf(h)] = append(zoned[b.NameOf(h)], h)
	}
	shared := map[string]sharing{}
	for _, h := range config.Find[sharing](b) {
		shared[b.NameOf(h)] = h
	}
	nth := map[string]int{}
	for _, s := range b.Chain.Steps()[at+1:] {
		i := nth[s.Name]
		nth[s.Name]++
		who := s.Name + " " + strconv.Itoa(i)
		switch n := len(zoned[s.Name]); {
		case shared[s.Name] != nil:
			r.sharing = append(r.sharing, shared[s.Name])
		case n > 0 && n == len(texts[s.Name]) && i < n:
			who = texts[s.Name][i] // whatever stands beside it
			for _, zone := range zoned[s.Name][i].Zones() {
				r.choosy[zone] = append(r.choosy[zone], len(r.texts))
			}
			r.texts = append(r.texts, who)
		case i == 0:
			r.common += strings.Join(texts[s.Name], "\n") + "\n"
		}
		r.steps = append(r.steps, uint32(maphash.String(seed, who)))
	}
	r.steps = append(r.steps, 0) // so that there is one, whoever answers
	return r
}

// way is that of the names in a zone and in no longer one of those that count.
func (r *wayReader) way(zone wire.Name) uint64 {
	var text strings.Builder
	fmt.Fprintf(&text, "%s%q\n", r.common, string(zone))
	for _, s := range r.sharing {
		text.WriteString(s.Share(zone) + "\n")
	}
	asked := slices.Clone(r.choosy[wire.Root])
	for z := zone; z != "" && z != wire.Root; z = z[1+int(z[0]):] {
		asked = append(asked, r.choosy[z]...)
	}
	slices.Sort(asked)
	for _, i := range slices.Compact(asked) {
		text.WriteString(r.texts[i] + "\n")
	}
	return maphash.String(r.seed, text.String())
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
