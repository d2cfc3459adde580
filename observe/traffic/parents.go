package traffic

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"strconv"
	"time"
	"unsafe"

	"github.com/seamark/seamark/sys/order"
)

// A below estimates how many different names below a parent were queried, and by how many clients.
type below struct {
	names, clients    smallSketch
	recorded, queries float64 // queries that were recorded, and all, which they are a sample of
	recent            recent

	// The client that more than half of the queries are from, if there is one (Boyer and Moore's vote).
	client    [maxClient]byte
	clientLen int     // its length
	lead      float64 // its queries less those of others
}

// maxClient is the number of bytes of a client's address as text.
const maxClient = 48

// vote counts queries of a client.
func (b *below) vote(client []byte, queries float64) {
	switch {
	case string(b.candidate()) == string(client):
		b.lead += queries
	case b.lead >= queries:
		b.lead -= queries
	default:
		b.clientLen, b.lead = copy(b.client[:], client), queries-b.lead
	}
}

func (b *below) candidate() []byte { return b.client[:b.clientLen] }

// A recent has the queries of the last minute, by the interval of the history.
type recent struct {
	last    int // the interval of the last query
	queries [int(time.Minute / interval)]float32
}

// add counts queries in an interval.
func (r *recent) add(number int, queries float64) {
	for n := max(r.last+1, number-len(r.queries)+1); n <= number; n++ {
		r.queries[n%len(r.queries)] = 0
	}
	r.last = max(r.last, number)
	if r.last-number < len(r.queries) {
		r.queries[number%len(r.queries)] += float32(queries)
	}
}

// sum returns the queries of the last minute, as Last counts them in an interval.
func (r *recent) sum(number int) (n float64) {
	for i := max(0, number-len(r.queries)+1); i <= r.last; i++ {
		n += float64(r.queries[i%len(r.queries)])
	}
	return n
}

func (b *below) merge(other *below) {
	b.names.merge(&other.names)
	b.clients.merge(&other.clients)
	b.recorded, b.queries = b.recorded+other.recorded, b.queries+other.queries
	b.vote(other.candidate(), other.lead)
}

// A smallSketch is like a sketch, with a standard error of 6.5 %.
type smallSketch [256]uint8

func (s *smallSketch) add(hash uint64) {
	rank := bits.LeadingZeros64(hash<<8|1<<7) + 1
	s[hash>>56] = max(s[hash>>56], uint8(rank))
}

// merge adds what was added to another sketch.
func (s *smallSketch) merge(other *smallSketch) {
	for i, rank := range other {
		s[i] = max(s[i], rank)
	}
}

func (s *smallSketch) count() float64 {
	ranks := make([]float64, 64-8+2)
	for _, rank := range s {
		ranks[rank]++
	}
	return math.Round(estimate(ranks))
}

// parentLevels is how many ancestors of a name are counted: random names have one random label or
// two.
const parentLevels = 2

// addParents counts a name for its nearest ancestors, n for a number of queries in an interval of the history.
func (t *top) addParents(seed maphash.Seed, name, client []byte, n, queries float64, number int) {
	hash, from := maphash.Bytes(seed, name), maphash.Bytes(seed, client)
	for range parentLevels {
		if name = name[1+int(name[0]):]; len(name) <= 1 {
			return
		}
		c := t.add(maphash.Bytes(seed, name), name, nil, client, n)
		if c.below == nil {
			c.below = new(below)
			t.count(c, int64(unsafe.Sizeof(below{})))
		}
		c.below.names.add(hash)
		c.below.clients.add(from)
		c.below.recorded, c.below.queries = c.below.recorded+1, c.below.queries+queries
		c.below.recent.add(number, queries)
		c.below.vote(client, queries)
	}
}

// A Group are the names below a parent that are not entries of a list: each of them was queried a
// few times, but together they were queried often.
type Group struct {
	Parent  string  `json:"parent"`
	Count   float64 `json:"count"`   // estimated
	Share   float64 `json:"share"`   // of all, from 0 to 1
	Names   float64 `json:"names"`   // about how many different ones
	Clients float64 `json:"clients"` // about how many different ones
	Recent  float64 `json:"recent"`  // queries of the last minute below the parent, estimated
	Example string  `json:"example"` // the client of most queries, if it has more than half, or another one
}

// String returns the group as text, such as "about 170,000 names below example.org., from about 3
// clients".
func (g Group) String() string {
	clients := "one client"
	if g.Clients > 1 {
		clients = fmt.Sprintf("about %s clients", thousands(g.Clients))
	}
	return fmt.Sprintf("about %s names below %s, from %s", thousands(g.Names), g.Parent, clients)
}

// thousands returns a number with two significant digits, and with commas.
func thousands(f float64) string {
	if f >= 100 {
		unit := math.Pow(10, math.Floor(math.Log10(f))-1)
		f = math.Round(f/unit) * unit
	}
	return Commas(f)
}

// Commas returns a whole number with a comma before each three digits.
func Commas(f float64) string {
	text := strconv.FormatFloat(f, 'f', 0, 64)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

const (
	// leastNames is the number of names from which on they are a group.
	leastNames = 100
	// leastShare is the least share of a group.
	leastShare = 0.01
)

// A parent is a counter of parents, of several tops.
type parent struct {
	name          string
	count, excess float64
	below         below
	recent        float64
	rest          float64 // what neither entries nor groups below it have
}

// groups returns the names that are no entries by their parents, the largest group first. number is the present
// interval of the history.
func groups(entries []Entry, total float64, number int, tops ...*top) (found []Group) {
	all := map[string]*parent{}
	for _, t := range tops {
		for _, c := range t.heap {
			name := string(appendText(nil, c.key))
			p := all[name]
			if p == nil {
				p = &parent{name: name}
				all[name] = p
			}
			p.count, p.excess = p.count+c.count, p.excess+c.excess
			p.below.merge(c.below)
			p.recent += c.below.recent.sum(number)
		}
	}

	var deepest []*parent
	for _, p := range all {
		if p.excess <= p.count/2 {
			p.rest = p.count - p.excess
			deepest = append(deepest, p)
		}
	}
	order.Slice(deepest, func(a, b *parent) int {
		return cmp.Or(cmp.Compare(len(b.name), len(a.name)), cmp.Compare(a.name, b.name))
	})

	take := func(name string, count float64, levels int) {
		for range levels {
			name = above(name)
			if p := all[name]; p != nil {
				p.rest -= count
			}
		}
	}
	for _, e := range entries {
		take(e.Key, e.Count-e.Excess, parentLevels)
	}

	// From the longest name on, what is in the group of a parent is not in that of its parent.
	for _, p := range deepest {
		names := p.names()
		if names < leastNames || p.rest < leastShare*total {
			continue
		}
		take(p.name, p.rest, parentLevels-1)
		found = append(found, Group{
			Parent: p.name, Count: p.rest, Share: p.rest / total, Names: names, Clients: p.below.clients.count(),
			Recent: p.recent * p.rest / p.count, Example: string(p.below.candidate()),
		})
	}
	order.Slice(found, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Parent, b.Parent))
	})
	return found
}

// above returns the parent of a name.
func above(name string) string {
	for i := 0; i < len(name); i++ {
		switch name[i] {
		case '\\':
			i++ // the next character is a part of the label, or a digit of its code
		case '.':
			return name[i+1:]
		}
	}
	return ""
}

// names returns about how many different names the rest has. If each recorded query is for another
// name, the same is assumed of the queries that were not recorded.
func (p *parent) names() float64 {
	names, rest := p.below.names.count(), p.rest/(p.count-p.excess)
	if unique := min(1, names/(rest*p.below.recorded)); rest > 0 && unique > 0.5 {
		return math.Round(unique * rest * p.below.queries)
	}
	return names
}
