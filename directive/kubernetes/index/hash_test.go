package index

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/seamark/seamark/test/clustertest"
)

func TestHashLabel(t *testing.T) {
	for ip, want := range map[string]string{
		"1.2.3.4": "6263626163303737", "10.0.0.1": "3234633364383235", "10.0.0.2": "6661613463623165",
		"10.96.0.1": "6266366134663036", "2001:db8::1": "3537393061303264",
	} {
		if got := AppendHashLabel([]byte("x."), netip.MustParseAddr(ip)); string(got) != "x."+want {
			t.Errorf("%s: got %s, want %s", ip, got[2:], want)
		}
	}
}

// The label is the hash of the printed message, without leading zeros.
func TestHashLabelEqualsMessageHash(t *testing.T) {
	short := 0
	for range 1000 {
		ip := netip.AddrFrom4([4]byte{10, byte(rand.N(256)), byte(rand.N(256)), byte(rand.N(256))})
		want := clustertest.HashLabel(ip)
		if got := AppendHashLabel(nil, ip); string(got) != want {
			t.Fatalf("%s: got %s, want %s", ip, got, want)
		}
		if len(want) < 16 {
			short++
		}
	}
	if short == 0 {
		t.Error("got no hash that begins with a zero, want at least one")
	}
}

func TestHashLabelAllocations(t *testing.T) {
	ip, room := netip.MustParseAddr("2001:db8:1234:5678:9abc:def0:1234:5678"), make([]byte, 0, 16)
	if n := testing.AllocsPerRun(100, func() { AppendHashLabel(room, ip) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
