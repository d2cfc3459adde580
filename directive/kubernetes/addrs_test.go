package kubernetes

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// at is address n of a family.
func at(six bool, n int) netip.Addr {
	b := [16]byte{12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}
	if six {
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte(b[12:]))
}

// from gives the pairs of a family from an address on.
func (a *addrs) from(low netip.Addr) (ps []pair) {
	b := only(low)
	for i := range b.high {
		b.high[i] = 255
	}
	for r := a.within(b); r.next(); {
		ps = append(ps, pair{r.ip(), r.home})
	}
	return ps
}

func all(a *addrs) []pair { return append(a.from(at(false, 0)), a.from(at(true, 0))...) }

// chunksOf are those of both families.
func chunksOf(a *addrs) (cs []*chunk) {
	for _, s := range [2]*shelf{&a.four, &a.six} {
		if list := s.list.Load(); list != nil {
			for i := range list.slots {
				cs = append(cs, list.slots[i].Load())
			}
		}
	}
	return cs
}

// pairs are those of a chunk.
func (c *chunk) pairs(width int) (ps []pair) {
	for j, h := range c.homes {
		ip, _ := netip.AddrFromSlice(c.at(j, width))
		ps = append(ps, pair{ip, h})
	}
	return ps
}

// intact says what is wrong with the chunks.
func intact(a *addrs) error {
	for _, s := range [2]*shelf{&a.four, &a.six} {
		list := s.list.Load()
		if list == nil {
			continue
		}
		small := 0
		for i := range list.slots {
			ps := list.slots[i].Load().pairs(list.width)
			switch {
			case len(ps) == 0 || len(ps) > chunkSize:
				return fmt.Errorf("chunk %d has %d pairs", i, len(ps))
			case !slices.IsSortedFunc(ps, pair.compare):
				return fmt.Errorf("chunk %d is not in order", i)
			case i > 0 && ps[0].compare(list.first(i)) < 0 || i+1 < len(list.slots) && ps[len(ps)-1].compare(list.first(i+1)) >= 0:
				return fmt.Errorf("chunk %d holds what belongs to another", i)
			}
			if len(ps) < chunkSize/4 {
				small++
			}
		}
		if n := len(list.slots); small > 1+n*2/3 {
			return fmt.Errorf("%d of %d chunks are crumbs", small, n)
		}
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
	for seed := range uint64(9) {
		r := rand.New(rand.NewPCG(seed, 7))
		span := []int{20, 300, 2000}[seed%3]
		var a addrs
		model := map[pair]bool{}
		for range 100 {
			var add, remove []pair
			size := []int{1, 1, 1, 3, 50, 500}[r.IntN(6)]
			batch := map[pair]bool{}
			for range size {
				p := pair{at(r.IntN(4) == 0, r.IntN(span)), homes[r.IntN(len(homes))]}
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
			before := chunksOf(&a)
			var was [][]byte
			for _, c := range before {
				was = append(was, slices.Clone(c.keys))
			}
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
			// Readers that hold an old chunk see what they saw.
			for i, c := range before {
				if !slices.Equal(c.keys, was[i]) {
					t.Fatalf("seed %d: a reader's chunk has changed", seed)
				}
			}
			low := at(r.IntN(2) == 0, r.IntN(span))
			want = slices.DeleteFunc(want, func(p pair) bool { return p.addr.Is4() != low.Is4() || p.addr.Less(low) })
			if got := a.from(low); !slices.Equal(got, want) {
				t.Fatalf("seed %d: from %v there are %d pairs, want %d", seed, low, len(got), len(want))
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
			if err := intact(&a); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if n := len(chunksOf(&a)); n != 0 {
			t.Errorf("seed %d: all is removed, and %d chunks are left", seed, n)
		}
	}
}

// What comes at once fills the chunks; a change of few pairs makes few chunks, and
// no other list.
func TestChunksAfterAList(t *testing.T) {
	var a addrs
	h := &home{key: "x"}
	var ps []pair
	for i := range 100 * chunkSize {
		ps = append(ps, pair{at(false, 2*i), h})
	}
	a.apply(slices.Clone(ps), nil)
	if n := len(chunksOf(&a)); n != (100*chunkSize+listSize-1)/listSize {
		t.Errorf("%d chunks", n)
	}
	list := a.four.list.Load()
	a.apply(nil, []pair{ps[200]})
	a.apply([]pair{{at(false, 401), h}}, []pair{ps[201]})
	a.apply([]pair{{at(false, 403), h}}, []pair{ps[9000]})
	a.apply([]pair{{at(false, 405), h}, {at(false, 18001), h}}, []pair{ps[202], ps[9001]})
	if a.four.list.Load() != list {
		t.Error("a change within a chunk made another list")
	}
	if err := intact(&a); err != nil {
		t.Error(err)
	}
}

// An address that many Services have may fill several chunks: from must begin
// with the first of them.
func TestFromAtChunkBorders(t *testing.T) {
	var a addrs
	var ps []pair
	for n := range 6 {
		for i := range chunkSize*2 + 5 {
			ps = append(ps, pair{at(false, 10*n), &home{key: fmt.Sprintf("%04d", i)}})
		}
	}
	a.apply(slices.Clone(ps), nil)
	for low := range 61 {
		want := slices.DeleteFunc(slices.Clone(ps), func(p pair) bool { return p.addr.Less(at(false, low)) })
		if got := a.from(at(false, low)); !slices.Equal(got, want) {
			t.Errorf("from %d there are %d pairs, want %d", low, len(got), len(want))
		}
	}
	for _, c := range chunksOf(&a) { // every border exactly
		first := c.pairs(4)[0]
		if !slices.Contains(a.from(first.addr), first) {
			t.Errorf("from %v does not give %v", first.addr, first)
		}
	}
}

// A block of one family has no address of the other.
func TestWithinIsOfOneFamily(t *testing.T) {
	var a addrs
	var ps []pair
	h := &home{key: "x"}
	for _, s := range []string{"::1", "::2", "::fffe:ffff:ffff", "0.0.0.0", "10.0.0.1", "255.255.255.255", "::1:0:0:0", "64:ff9b::a00:1", "fd00::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"} {
		ps = append(ps, pair{netip.MustParseAddr(s), h})
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
		for r := a.within(&b); r.next(); {
			got = append(got, r.ip())
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
		ps = append(ps, pair{at(false, i), &home{key: "x"}})
	}
	a.apply(slices.Clone(ps), nil)
	slices.SortFunc(ps, func(x, y pair) int { return cmp.Compare(x.addr.As4()[3], y.addr.As4()[3]) })
	one := make([]pair, 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		one[0] = ps[i%len(ps)]
		a.apply(nil, one)
		one[0] = ps[i%len(ps)]
		a.apply(one, nil)
	}
}
