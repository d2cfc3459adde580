package index

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/ordered"
)

// testAddr returns address n of a family.
func testAddr(six bool, n int) netip.Addr {
	b := [16]byte{12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}
	if six {
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte(b[12:]))
}

// testKey returns the key of a Service of a namespace.
func testKey(namespace, service int) *ServiceKey {
	return &ServiceKey{Labels: Label(fmt.Sprintf("s%04d", service)) + Label(fmt.Sprintf("n%d", namespace))}
}

// refsFrom returns the references of a family from an address on.
func (r *ReverseIndex) refsFrom(low netip.Addr) (refs []addrRef) {
	c := r.Within(netip.PrefixFrom(low, 0)) // The first address of the range need not be zero.
	for c.Advance() {
		refs = append(refs, addrRef{c.Addr(), c.Service})
	}
	return refs
}

func allRefs(x *ReverseIndex) []addrRef {
	return append(x.refsFrom(testAddr(false, 0)), x.refsFrom(testAddr(true, 0))...)
}

// leavesOf returns the leaves of both families.
func leavesOf(x *ReverseIndex) []*addrLeaf { return append(x.ipv4.Leaves(), x.ipv6.Leaves()...) }

// checkLeaves reports leaves that have a wrong size or are not in order.
func checkLeaves(x *ReverseIndex) error {
	for i, l := range leavesOf(x) {
		if n := len(l.services); n == 0 || n > ordered.MaxItems {
			return fmt.Errorf("leaf %d: got %d references, want 1 to %d", i, n, ordered.MaxItems)
		}
		for j := 1; j < len(l.services); j++ {
			if order := cmp.Or(bytes.Compare(l.addr(j-1), l.addr(j)), l.services[j-1].Compare(l.services[j])); order >= 0 {
				return fmt.Errorf("leaf %d: got reference %d %x before %x, want them sorted", i, j-1, l.addr(j-1), l.addr(j))
			}
		}
	}
	return nil
}

// The batches are single references, a thousand, references that exist already and
// references that do not.
func TestReverseIndexEqualsSortedSlice(t *testing.T) {
	race.Skip(t)
	services := make([]*ServiceKey, 8)
	for i := range services {
		services[i] = testKey(i%3, i)
	}
	for seed := range uint64(9) {
		r := rand.New(rand.NewPCG(seed, 7))
		span := []int{20, 300, 2000}[seed%3]
		var x ReverseIndex
		model := map[addrRef]bool{}
		for range 100 {
			var add, remove []addrRef
			size := []int{1, 1, 1, 3, 50, 500}[r.IntN(6)]
			for range size {
				ref := addrRef{testAddr(r.IntN(4) == 0, r.IntN(span)), services[r.IntN(len(services))]}
				if r.IntN(2) == 0 {
					add = append(add, ref)
				} else {
					remove = append(remove, ref)
				}
			}
			for _, ref := range add {
				model[ref] = true
			}
			for _, ref := range remove {
				delete(model, ref)
			}
			x.apply(add, remove)
			if err := checkLeaves(&x); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			var want []addrRef
			for ref := range model {
				want = append(want, ref)
			}
			slices.SortFunc(want, addrRef.compare)
			if got := allRefs(&x); !slices.Equal(got, want) {
				t.Fatalf("seed %d: got %d references, want %d", seed, len(got), len(want))
			}
			low := testAddr(r.IntN(2) == 0, r.IntN(span))
			want = slices.DeleteFunc(want, func(ref addrRef) bool { return ref.addr.Is4() != low.Is4() || ref.addr.Less(low) })
			if got := x.refsFrom(low); !slices.Equal(got, want) {
				t.Fatalf("seed %d: from %v: got %d references, want %d", seed, low, len(got), len(want))
			}
		}
		var rest []addrRef
		for ref := range model {
			rest = append(rest, ref)
		}
		for len(rest) > 0 {
			n := min(len(rest), 1+r.IntN(100))
			x.apply(nil, rest[:n])
			rest = rest[n:]
			if err := checkLeaves(&x); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if n := len(leavesOf(&x)); n != 0 {
			t.Errorf("seed %d: everything removed: got %d leaves, want 0", seed, n)
		}
	}
}

// The references of one address, which many Services may have, fill several leaves:
// a cursor begins at the first of them.
func TestReverseIndexAtLeafBorders(t *testing.T) {
	var x ReverseIndex
	var refs []addrRef
	for n := range 6 {
		for i := range ordered.MaxItems*2 + 5 {
			refs = append(refs, addrRef{testAddr(false, 10*n), testKey(0, i)})
		}
	}
	x.apply(slices.Clone(refs), nil)
	for low := range 61 {
		want := slices.DeleteFunc(slices.Clone(refs), func(r addrRef) bool { return r.addr.Less(testAddr(false, low)) })
		if got := x.refsFrom(testAddr(false, low)); !slices.Equal(got, want) {
			t.Errorf("from %d: got %d references, want %d", low, len(got), len(want))
		}
	}
}

// SkipNamespace moves to the first reference of the next namespace, or of the next address,
// in whichever leaf that is.
func TestReverseIndexSkipNamespace(t *testing.T) {
	for _, each := range []int{1, 3, ordered.MaxItems, 3*ordered.MaxItems + 1} {
		var x ReverseIndex
		var refs []addrRef
		var want []string
		for _, ip := range []netip.Addr{testAddr(false, 1), testAddr(false, 2), testAddr(true, 1)} {
			for ns := range 3 {
				want = append(want, fmt.Sprint(ip, " ", testKey(ns, 0).Labels))
				for i := range each {
					refs = append(refs, addrRef{ip, testKey(ns, i)})
				}
			}
		}
		x.apply(refs, nil)
		var got []string
		for _, low := range []netip.Addr{testAddr(false, 0), testAddr(true, 0)} {
			for c := x.Within(netip.PrefixFrom(low, 0)); c.Advance(); c.SkipNamespace(&x) {
				got = append(got, fmt.Sprint(c.Addr(), " ", c.Service.Labels))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d references of each namespace: got %q, want %q", each, got, want)
		}
	}
}

func TestReverseIndexBlockOfOneFamily(t *testing.T) {
	var x ReverseIndex
	var refs []addrRef
	service := testKey(0, 0)
	for _, s := range []string{"::1", "::2", "::fffe:ffff:ffff", "0.0.0.0", "10.0.0.1", "255.255.255.255", "::1:0:0:0", "64:ff9b::a00:1", "fd00::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"} {
		refs = append(refs, addrRef{netip.MustParseAddr(s), service})
	}
	x.apply(refs, nil)
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
		wireName, err := wire.ParseName(name)
		if err != nil {
			t.Fatal(err)
		}
		prefix, ok := wire.ParseReverse([]byte(wireName))
		if !ok {
			t.Fatalf("%s: got no reverse name, want one", name)
		}
		got := []netip.Addr{}
		for c := x.Within(prefix); c.Advance(); {
			got = append(got, c.Addr())
		}
		if fmt.Sprint(got) != want {
			t.Errorf("within %s: got %v, want %s", name, got, want)
		}
	}
}

func BenchmarkReverseIndexChange(b *testing.B) {
	var x ReverseIndex
	var refs []addrRef
	for i := range 150_000 {
		refs = append(refs, addrRef{testAddr(false, i), testKey(0, 0)})
	}
	x.apply(slices.Clone(refs), nil)
	slices.SortFunc(refs, func(x, y addrRef) int { return cmp.Compare(x.addr.As4()[3], y.addr.As4()[3]) })
	one := make([]addrRef, 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		one[0] = refs[i%len(refs)]
		x.apply(nil, one)
		one[0] = refs[i%len(refs)]
		x.apply(one, nil)
	}
}
