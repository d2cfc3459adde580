package kube

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"sort"
	"sync/atomic"
)

// An address is sixteen bytes; IPv4 is mapped into IPv6, so that one order
// holds both.
type address = [16]byte

// A pair says that a Service has an address: as its ClusterIP or as that of
// one of its endpoints.
type pair struct {
	addr address
	home *home
}

func (p pair) compare(o pair) int {
	if c := bytes.Compare(p.addr[:], o.addr[:]); c != 0 {
		return c
	}
	return cmp.Compare(p.home.key, o.home.key)
}

// chunkSize is how many pairs one change copies at the most. Half of it is the
// least that is worth a chunk of its own.
const chunkSize = 128

// addrs is the reverse index: every pair in order, in immutable chunks. It has
// one writer; readers take no lock. Being ordered, it also tells whether a
// reverse name has others below it.
type addrs struct{ chunks atomic.Pointer[[][]pair] }

func (a *addrs) load() [][]pair {
	if chunks := a.chunks.Load(); chunks != nil {
		return *chunks
	}
	return nil
}

// A cursor walks over pairs in order. It is no iterator function, since that
// would be allocated for each query.
type cursor struct {
	chunks [][]pair
	i, j   int // the next pair
	pair   pair
}

// seek stands before the first pair with an address of at least low.
func (c *cursor) seek(low address) {
	// The last chunk that begins before low may hold it too.
	i := sort.Search(len(c.chunks), func(i int) bool {
		return bytes.Compare(c.chunks[i][0].addr[:], low[:]) >= 0
	})
	c.i, c.j = max(0, i-1), 0
	if c.i < len(c.chunks) {
		chunk := c.chunks[c.i]
		c.j = sort.Search(len(chunk), func(j int) bool {
			return bytes.Compare(chunk[j].addr[:], low[:]) >= 0
		})
	}
}

// next moves to the next pair, if there is one.
func (c *cursor) next() bool {
	for ; c.i < len(c.chunks); c.i, c.j = c.i+1, 0 {
		if c.j < len(c.chunks[c.i]) {
			c.pair = c.chunks[c.i][c.j]
			c.j++
			return true
		}
	}
	return false
}

// from gives the pairs from the first with an address of at least low.
func (a *addrs) from(low address) cursor {
	c := cursor{chunks: a.load()}
	c.seek(low)
	return c
}

// A reach is the pairs of a block's addresses. IPv4 stands amidst IPv6, but is
// no part of it.
type reach struct {
	cursor
	block
}

func (a *addrs) within(b block) reach { return reach{a.from(b.low), b} }

// is says whether ip is the address of the pair.
func (r *reach) is(ip netip.Addr) bool { return ip.As16() == r.pair.addr }

func (r *reach) next() bool {
	for r.cursor.next() {
		at := &r.pair.addr
		switch {
		case bytes.Compare(at[:], r.high[:]) > 0:
			return false
		case !r.ipv4 && string(at[:len(ipv4)]) == ipv4:
			r.seek(address{9: 1}) // the first behind IPv4
		default:
			return true
		}
	}
	return false
}

// apply adds and removes pairs, in one step for readers. Pairs to be added that
// are there, and pairs to be removed that are not, are no error.
func (a *addrs) apply(add, remove []pair) {
	if len(add)+len(remove) == 0 {
		return
	}
	slices.SortFunc(add, pair.compare)
	slices.SortFunc(remove, pair.compare)
	old := a.load()
	next := make([][]pair, 0, len(old)+len(add)/(chunkSize/2)+1)
	first := firstOf(old, add, remove)
	next = append(next, old[:first]...)
	for i, changed := first, true; i < max(1, len(old)); i++ {
		var chunk []pair
		if i < len(old) {
			chunk = old[i]
		}
		if !changed && len(add)+len(remove) == 0 {
			next = append(next, old[i:]...)
			break
		}
		changed = len(add)+len(remove) > 0 // then this chunk may go together with the next
		// What belongs before the next chunk belongs here.
		adds, removes := len(add), len(remove)
		if i+1 < len(old) {
			adds = until(add, old[i+1][0])
			removes = until(remove, old[i+1][0])
		}
		if adds+removes > 0 {
			chunk = merge(chunk, add[:adds], remove[:removes])
			add, remove = add[adds:], remove[removes:]
		}
		for len(chunk) > chunkSize {
			next = append(next, slices.Clone(chunk[:chunkSize/2]))
			chunk = chunk[chunkSize/2:]
			if len(chunk) <= chunkSize {
				chunk = slices.Clone(chunk)
			}
		}
		// Small neighbours are joined, or deletions would leave crumbs.
		if last := len(next) - 1; last >= 0 && len(next[last])+len(chunk) <= chunkSize/2 {
			next[last] = slices.Concat(next[last], chunk)
		} else if len(chunk) > 0 {
			next = append(next, chunk)
		}
	}
	a.chunks.Store(&next)
}

// firstOf finds the first chunk that the sorted changes touch.
func firstOf(chunks [][]pair, add, remove []pair) int {
	i := sort.Search(len(chunks), func(i int) bool {
		return len(add) > 0 && add[0].compare(chunks[i][0]) < 0 || len(remove) > 0 && remove[0].compare(chunks[i][0]) < 0
	})
	return max(0, i-1)
}

// until counts those of ps that come before limit.
func until(ps []pair, limit pair) int {
	n, _ := slices.BinarySearchFunc(ps, limit, pair.compare)
	return n
}

// merge returns chunk and add without remove, all in order.
func merge(chunk, add, remove []pair) []pair {
	out := make([]pair, 0, len(chunk)+len(add))
	put := func(p pair) {
		if len(out) > 0 && out[len(out)-1] == p {
			return
		}
		for len(remove) > 0 && remove[0].compare(p) < 0 {
			remove = remove[1:]
		}
		if len(remove) > 0 && remove[0] == p {
			return
		}
		out = append(out, p)
	}
	for len(chunk) > 0 && len(add) > 0 {
		if chunk[0].compare(add[0]) <= 0 {
			put(chunk[0])
			chunk = chunk[1:]
		} else {
			put(add[0])
			add = add[1:]
		}
	}
	for _, p := range chunk {
		put(p)
	}
	for _, p := range add {
		put(p)
	}
	return out
}
