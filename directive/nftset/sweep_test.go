package nftset

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/nftables"
	"github.com/seamark/seamark/test/chaintest"
)

// The memory of elements that have ended is released, for others of the server's budget and for new ones.
func TestMemoryReleasedBySweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget, stub := memory.New(64<<20, memory.FromMachine), newStub()
		k := newKeeper(func() (Writer, error) { return stub, nil }, budget.Claim(memory.Files))
		defer k.Stop()
		s := newSet(nftables.Set{Family: "inet", Table: "filter", Name: "v4"}, k, chaintest.QuietLog(), new(health.Board), new(metrics.Registry))
		k.add(s)
		k.mu.Lock()
		k.swept = clock.Now() // which is before the start of the process
		k.mu.Unlock()

		const short, long = 5000, 10
		for i := range short + long {
			client, ip, until := netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), time.Minute
			if i >= short {
				until = time.Hour
			}
			if !k.write(t.Context(), client, []demand{{element{set: s, ip: ip}, until}}) {
				t.Fatalf("element %d was not written", i)
			}
		}
		before := budget.Part(memory.Files).Used
		time.Sleep(2*time.Minute + 2*sweepInterval)
		k.check()
		if after := budget.Part(memory.Files).Used; before < short*knownBytes || after != long*knownBytes {
			t.Errorf("reserved memory: got %d bytes with %d elements, and %d after the sweep, want %d", before, short+long, after, long*knownBytes)
		}
	})
}
