package kubernetes

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"sort"
)

// A pair says that a Service has an address: as its ClusterIP or as that of
// one of its endpoints.
type pair struct {
	addr netip.Addr
	home *home
}

func (p pair) compare(o pair) int {
	if c := p.addr.Compare(o.addr); c != 0 {
		return c
	}
	return cmp.Compare(p.home.key, o.home.key)
}

// addrs is the reverse index: every pair in order, each family by itself. It
// has one writer; readers take no lock. Being ordered, it also tells whether a
// reverse name has others below it.
type addrs struct{ four, six shelf }

// apply adds and removes pairs. A reader that meets the change sees those that
// come, or does not yet miss those that go: a name above both is never away.
// Pairs to be added that are there, and pairs to be removed that are not, are no
// error.
func (a *addrs) apply(add, remove []pair) {
	if len(add)+len(remove) == 0 {
		return
	}
	slices.SortFunc(add, pair.compare)
	slices.SortFunc(remove, pair.compare)
	six := func(ps []pair) int { // netip has IPv4 before IPv6
		return sort.Search(len(ps), func(i int) bool { return ps[i].addr.Is6() })
	}
	adds, removes := six(add), six(remove)
	a.four.apply(4, add[:adds], remove[:removes])
	a.six.apply(16, add[adds:], remove[removes:])
}

// A reach is the pairs of a block's addresses, in order. It is no iterator
// function, since that would be allocated for each query.
type reach struct {
	chunks *chunks
	chunk  *chunk // that the next pair is in, unless it has been read to its end
	i, j   int    // the chunk's number, and the pair's in it
	home   *home  // of the pair at hand
	high   []byte // the block's last address
}

// within gives the pairs of a block.
func (a *addrs) within(b *block) (r reach) {
	if b.ipv4 {
		r.chunks, r.high = a.four.list.Load(), b.high[len(ipv4):]
		r.i, r.chunk, r.j = r.chunks.seek(b.low[len(ipv4):])
	} else {
		r.chunks, r.high = a.six.list.Load(), b.high[:]
		r.i, r.chunk, r.j = r.chunks.seek(b.low[:])
	}
	return r
}

// next moves to the next pair, if there is one.
func (r *reach) next() bool {
	for r.chunk != nil {
		if r.j < len(r.chunk.homes) {
			r.home = r.chunk.homes[r.j]
			r.j++
			return bytes.Compare(r.chunk.at(r.j-1, len(r.high)), r.high) <= 0
		}
		if r.i++; r.i == len(r.chunks.slots) {
			break
		}
		r.chunk, r.j = r.chunks.slots[r.i].Load(), 0
	}
	return false
}

// ip is the address of the pair at hand.
func (r *reach) ip() netip.Addr {
	ip, _ := netip.AddrFromSlice(r.chunk.at(r.j-1, len(r.high)))
	return ip
}
