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
	n, err := fill(netip.MustParseAddr("192.0.2.1"), true)
	if least := budget.Part(memory.Followers).Min / followerSize; n < least || n > limit/4 || err != dns.HandlerShare {
		t.Errorf("while zones have the memory: got %d places and %v, want at least %d and %v", n, err, least, dns.HandlerShare)
	}
	if w.clients.Used() != n {
		t.Errorf("while zones have the memory: %d queries are counted, want %d", w.clients.Used(), n)
	}
}
