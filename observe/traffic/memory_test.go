package traffic

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/sys/memory"
)

// size returns the memory of the keys of all lists, and how many there are.
func (r *Recorder) size() (bytes int64, keys int) {
	for w := range r.windows {
		for by := range numLists {
			for _, t := range []*top{&r.windows[w][by], &r.parents[w][by]} {
				for _, c := range t.heap[:cap(t.heap)] {
					if c != nil {
						bytes, keys = bytes+counterSize+c.size(), keys+1
					}
				}
			}
		}
	}
	return bytes, keys
}

// With little memory fewer keys and events are kept, whatever names are queried, and those with the
// highest counts are among them. What is reserved is what there is, and its end ends that.
func TestRecordsWithinMemory(t *testing.T) {
	const queries = 6_000
	for _, total := range []int64{24 << 20, 35 << 20, 1 << 30} {
		budget := memory.New(total, memory.FromMachine)
		r := NewRecorder(budget.Claim(memory.Records))
		long := "." + strings.Repeat("padding.", 20) + "example."
		var client netip.Addr
		ask := func(name string, at time.Time) {
			client = client.Next()
			e := event("SERVFAIL")
			e.Time, e.Client, e.Duration = at, client, time.Second
			r.Record(e, wireName(name), []byte("shop"), 0)
		}

		client, now := netip.MustParseAddr("10.0.0.1"), time.Now()
		for i := range topSize { // short ones first, so that they have to grow
			ask(fmt.Sprintf("s%d.example.", i), now)
		}
		for i := range queries {
			at := now.Add(time.Duration(i) * window / queries * 3) // three windows
			ask(fmt.Sprintf("n%d%s", i, long), at)
			if i%10 == 0 {
				ask("often.example.", at)
			}
		}

		bytes, keys := r.size()
		p := budget.Part(memory.Records)
		reserved := fixedSize + int64(len(r.ring))*recordSize + bytes
		if r.memory.used != reserved || p.Used < reserved || p.Used > reserved+64<<10 {
			t.Errorf("%s: got %d bytes counted and %d reserved, want %d", memory.Size(total), r.memory.used, p.Used, reserved)
		}
		most := p.Max + 2*2*numLists*leastTop*2000
		if total == 1<<30 {
			if len(r.ring) != ringSize || keys < 7*topSize {
				t.Errorf("%s: got %d events and %d keys, want %d and %d", memory.Size(total), len(r.ring), keys, ringSize, 7*topSize)
			}
		} else if p.Used > most {
			t.Errorf("%s: got %d bytes, want at most %d", memory.Size(total), p.Used, most)
		}

		end := now.Add(3 * window)
		for _, by := range []int{Names, ServFail, Slow} {
			top := r.Top(by, 10, end)
			if !slices.ContainsFunc(top.Entries, func(e Entry) bool { return e.Key == "often.example." }) {
				t.Errorf("%s: %s: got %v, want often.example. in it", memory.Size(total), ListNames[by], top.Entries)
			}
		}
		events, next := r.Since(0, math.MaxInt)
		if len(events) != len(r.ring) || next != topSize+queries+queries/10 {
			t.Errorf("%s: got %d events before %d, want %d", memory.Size(total), len(events), next, len(r.ring))
		}
		if r.Stop(); budget.Part(memory.Records).Used != 0 {
			t.Errorf("%s: got %d bytes reserved after the end", memory.Size(total), budget.Part(memory.Records).Used)
		}
	}
}
