package kube

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func at(n int) address {
	return address{12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}
}

func all(a *addrs) (ps []pair) {
	for c := a.from(address{}); c.next(); {
		ps = append(ps, c.pair)
	}
	return ps
}

// intact says what is wrong with the chunks.
func intact(a *addrs) error {
	small := 0
	for i, c := range a.load() {
		if len(c) == 0 || len(c) > chunkSize {
			return fmt.Errorf("chunk %d has %d pairs", i, len(c))
		}
		if !slices.IsSortedFunc(c, pair.compare) {
			return fmt.Errorf("chunk %d is not in order", i)
		}
		if len(c) < chunkSize/4 {
			small++
		}
	}
	if n := len(a.load()); small > 1+n*2/3 {
		return fmt.Errorf("%d of %d chunks are crumbs", small, n)
	}
	return nil
}

// The reverse index holds what a sorted slice would, whatever batches come:
// single pairs, a thousand, pairs that are there already, pairs that are not.
func TestAddrsAgainstSortedSlice(t *testing.T) {
	homes := make([]*home, 8)
	for i := range homes {
		homes[i] = &home{key: string(rune('a' + i))}
	}
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 7))
		span := []int{20, 300, 2000}[seed%3]
		var a addrs
		model := map[pair]bool{}
		for range 100 {
			var add, remove []pair
			size := []int{1, 1, 1, 3, 50, 500}[r.IntN(6)]
			batch := map[pair]bool{}
			for range size {
				p := pair{at(r.IntN(span)), homes[r.IntN(len(homes))]}
				if batch[p] {
					continue // one change neither brings a pair twice nor brings and takes it
				}
				batch[p] = true
				if r.IntN(2) == 0 {
					add = append(add, p)
				} else {
					remove = append(remove, p)
				}
			}
			for _, p := range add {
				model[p] = true
			}
			for _, p := range remove {
				delete(model, p)
			}
			before, was := a.load(), all(&a)
			a.apply(add, remove)
			if err := intact(&a); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			var want []pair
			for p := range model {
				want = append(want, p)
			}
			slices.SortFunc(want, pair.compare)
			if got := all(&a); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %d pairs, want %d", seed, len(got), len(want))
			}
			// Readers that hold the old chunks see what they saw.
			if held := slices.Concat(before...); !slices.Equal(held, was) {
				t.Fatalf("seed %d: a reader's chunks have changed", seed)
			}
			low := at(r.IntN(span))
			var got []pair
			for c := a.from(low); c.next(); {
				got = append(got, c.pair)
			}
			i, _ := slices.BinarySearchFunc(want, low, func(p pair, low address) int { return slices.Compare(p.addr[:], low[:]) })
			if !slices.Equal(got, want[i:]) {
				t.Fatalf("seed %d: from %v there are %d pairs, want %d", seed, low, len(got), len(want)-i)
			}
		}
		var rest []pair
		for p := range model {
			rest = append(rest, p)
		}
		for len(rest) > 0 {
			n := min(len(rest), 1+r.IntN(100))
			a.apply(nil, rest[:n])
			rest = rest[n:]
		}
		if n := len(a.load()); n != 0 {
			t.Errorf("seed %d: all is removed, and %d chunks are left", seed, n)
		}
	}
}

// An address that many Services have may fill several chunks: from must begin
// with the first of them.
func TestFromAtChunkBorders(t *testing.T) {
	var a addrs
	var ps []pair
	for n := range 6 {
		for i := range chunkSize*2 + 5 {
			ps = append(ps, pair{at(10 * n), &home{key: fmt.Sprintf("%04d", i)}})
		}
	}
	a.apply(slices.Clone(ps), nil)
	for low := range 61 {
		want := 0
		for _, p := range ps {
			if address := at(low); slices.Compare(p.addr[:], address[:]) >= 0 {
				want++
			}
		}
		got := 0
		for c := a.from(at(low)); c.next(); {
			got++
		}
		if got != want {
			t.Errorf("from %d there are %d pairs, want %d", low, got, want)
		}
	}
	for _, c := range a.load() { // every border exactly
		first := c[0]
		found := false
		for c := a.from(first.addr); c.next() && c.pair.addr == first.addr; {
			found = found || c.pair == first
		}
		if !found {
			t.Errorf("from %v does not give %v", first.addr, first)
		}
	}
}

// IPv4 addresses stand amidst IPv6 in the index; a block of one family has none
// of the other.
func TestWithinIsOfOneFamily(t *testing.T) {
	var a addrs
	var ps []pair
	h := &home{key: "x"}
	for _, s := range []string{"::1", "::2", "::fffe:ffff:ffff", "0.0.0.0", "10.0.0.1", "255.255.255.255", "::1:0:0:0", "64:ff9b::a00:1", "fd00::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"} {
		ps = append(ps, pair{netip.MustParseAddr(s).As16(), h})
	}
	a.apply(ps, nil)
	for name, want := range map[string]string{
		"in-addr.arpa.":     "[0.0.0.0 10.0.0.1 255.255.255.255]",
		"10.in-addr.arpa.":  "[10.0.0.1]",
		"255.in-addr.arpa.": "[255.255.255.255]",
		"11.in-addr.arpa.":  "[]",
		"ip6.arpa.":         "[::1 ::2 ::fffe:ffff:ffff ::1:0:0:0 64:ff9b::a00:1 fd00::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]",
		"0.ip6.arpa.":       "[::1 ::2 ::fffe:ffff:ffff ::1:0:0:0 64:ff9b::a00:1]",
		"0.0.0.0.ip6.arpa.": "[::1 ::2 ::fffe:ffff:ffff ::1:0:0:0]",
		"d.f.ip6.arpa.":     "[fd00::1]",
		"f.f.f.f.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.":                 "[]",
		"1.0.0.0.0.0.a.0.f.f.f.f.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.": "[]",
	} {
		b, ok := reverseOf(t, name)
		if !ok {
			t.Fatal(name)
		}
		got := []netip.Addr{}
		for r := a.within(b); r.next(); {
			got = append(got, netip.AddrFrom16(r.pair.addr).Unmap())
		}
		if fmt.Sprint(got) != want {
			t.Errorf("within %s: %v, want %s", name, got, want)
		}
	}
}

func BenchmarkAddrsApplyOne(b *testing.B) {
	var a addrs
	var ps []pair
	for i := range 150_000 {
		ps = append(ps, pair{at(i), &home{key: "x"}})
	}
	a.apply(slices.Clone(ps), nil)
	slices.SortFunc(ps, func(x, y pair) int { return cmp.Compare(x.addr[15], y.addr[15]) })
	one := make([]pair, 1)
	for i := range b.N {
		one[0] = ps[i%len(ps)]
		a.apply(nil, one)
		one[0] = ps[i%len(ps)]
		a.apply(one, nil)
	}
}
