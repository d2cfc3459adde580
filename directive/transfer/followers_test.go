package transfer

import (
	"net/netip"
	"testing"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/memory"
)

// One client can have half of the places, and clients that the Corefile does not name three quarters. Followers
// have a part of the memory.
func TestFollowersShare(t *testing.T) {
	budget := memory.New(64<<20, memory.FromGroup)
	w := newWaiting(budget, new(metrics.Registry))
	limit := budget.Max(memory.Followers) / followerSize
	var releases []func()
	fill := func(client netip.Addr, named bool) (n int64, err error) {
		for {
			release, err := w.reserve(client, named)
			if err != nil {
				return n, err
			}
			releases = append(releases, release)
			n++
		}
	}

	most := limit - limit/4
	one, err := fill(netip.MustParseAddr("192.0.2.1"), false)
	if want := (most + 1) / 2; one != want || err != dns.ClientShare {
		t.Errorf("one client: got %d places and %v, want %d of %d and %v", one, err, want, limit, dns.ClientShare)
	}
	sum := one
	for i := range 1000 {
		n, err := fill(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), false)
		if err == nil {
			t.Error("a client was never refused")
		}
		sum += n
	}
	if sum != most {
		t.Errorf("many clients: got %d places, want %d of %d", sum, most, limit)
	}
	if n, _ := fill(netip.MustParseAddr("192.0.2.2"), true); n < limit/4/2 {
		t.Errorf("a named client beside the others: got %d places, want at least %d", n, limit/4/2)
	}
	if used, held := budget.Part(memory.Followers).Used, w.clients.Used(); used != held*followerSize || held != int64(len(releases)) {
		t.Errorf("%d bytes are reserved for %d queries", used, held)
	}
	for _, release := range releases {
		release()
	}
	if used := budget.Part(memory.Followers).Used; used != 0 || w.clients.Used() != 0 {
		t.Errorf("at the end: %d bytes and %d queries, want none", used, w.clients.Used())
	}

	// Without memory there are fewer, and none that is not counted.
	releases = nil
	for budget.Reserve(memory.Zones, 4096) == nil {
	}
	least := budget.Free(memory.Followers) / followerSize
	if budget.Free(memory.Followers) < budget.Part(memory.Followers).Min {
		t.Errorf("while zones have the memory: got %d bytes for followers, want their minimum", budget.Free(memory.Followers))
	}
	n, err := fill(netip.MustParseAddr("192.0.2.1"), true)
	if want := (least + 1) / 2; n != want || err != dns.ClientShare {
		t.Errorf("one client while zones have the memory: got %d places and %v, want %d of %d and %v",
			n, err, want, least, dns.ClientShare)
	}
	for i := range 10 {
		other, _ := fill(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 2)}), true)
		n += other
	}
	if n != least || w.clients.Used() != n {
		t.Errorf("others while zones have the memory: got %d places with the first, %d counted, want %d", n, w.clients.Used(), least)
	}
}
