package secondary

import (
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
)

// The garbage of a transfer does not remain in memory.
func TestGarbageOfTransfer(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nothing else collects it
	synctest.Test(t, func(t *testing.T) {
		c, p, log := startCopy(t, 0)
		zone := []string{newer}
		for i := range 100 {
			var message strings.Builder
			for j := range 200 {
				fmt.Fprintf(&message, "n%d.n%d 5 TXT %s\n", j, i, strings.Repeat("x", 100))
			}
			zone = append(zone, message.String())
		}
		p.set(0, map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: append(zone, newer)})
		c.notify()
		time.Sleep(time.Minute)
		if got := serialOf(c); got != 6 {
			t.Fatalf("got serial number %d, want 6\n%s", got, log)
		}
		// What was allocated after the release is little.
		if unused, live := unusedHeap(); unused > max(minGarbage, live/2)+1<<20 {
			t.Errorf("got %d bytes of garbage and free memory beside %d in use, want at most half", unused, live)
		}
	})
}

// A version for which the server has no memory is refused, whether it comes as a whole or as
// differences: the old one is served, nothing of the new one stays reserved, and the next attempt
// is ten minutes later or after NOTIFY.
func TestTransferMemoryRefused(t *testing.T) {
	var large []string
	for i := range 40 {
		var message strings.Builder
		for j := range 200 {
			fmt.Fprintf(&message, "n%d.n%d 5 TXT %s\n", j, i, strings.Repeat("x", 100))
		}
		large = append(large, message.String())
	}

	for _, tt := range []struct {
		name    string
		replies map[uint16][]string
		asked   string
	}{
		{"AXFR", map[uint16][]string{axfr: slices.Concat([]string{newer}, large, []string{newer})}, "SOA IXFR SOA AXFR"},
		{"IXFR", map[uint16][]string{ixfr: slices.Concat([]string{newer + "\n@ 5 SOA 5\n" + newer}, large, []string{newer})}, "SOA IXFR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(8<<20, memory.FromGroup)
				c, p, log := startCopyIn(t, 0, b)
				before := b.Part(memory.Zones).Used
				tt.replies[soaQuery] = []string{newer}
				if tt.replies[ixfr] == nil {
					tt.replies[ixfr] = []string{newer}
				}
				p.set(0, tt.replies)
				for range 2 {
					c.notify()
					time.Sleep(4 * time.Minute)
				}

				if got := strings.TrimSpace(p.asked()); got != tt.asked+" "+tt.asked {
					t.Errorf("the primary was asked %q, want %q once for each NOTIFY", got, tt.asked)
				}
				if got := serialOf(c); got != 5 || !strings.Contains(log.String(), "no memory for more transfers") {
					t.Errorf("got serial number %d, want 5 and the reason in the log\n%s", got, log)
				}
				if receiving, zones := b.Part(memory.Transfers).Used, b.Part(memory.Zones).Used; receiving != 0 || zones != before || before == 0 {
					t.Errorf("%d bytes reserved for transfers and %d for zones, want 0 and %d", receiving, zones, before)
				}

				p.set(0, map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {newer + "\nd 5 A 192.0.2.4\n" + newer}})
				c.notify()
				time.Sleep(time.Minute)
				if got := serialOf(c); got != 6 {
					t.Errorf("a smaller version: got serial number %d, want 6\n%s", got, log)
				}
				c.Stop()
				if zones := b.Part(memory.Zones).Used; zones != 0 {
					t.Errorf("after Stop: %d bytes reserved, want 0", zones)
				}
			})
		})
	}
}

// The file of a version for which there is no memory, or that is larger than max_size, is ignored.
func TestFileMemoryRefused(t *testing.T) {
	text := new(strings.Builder)
	fmt.Fprintln(text, "@ 5 SOA 5")
	for i := range 8000 {
		fmt.Fprintf(text, "n%d 5 TXT %s\n", i, strings.Repeat("x", 100))
	}
	z, err := receiveAll(nil, message(t, axfr, text.String()+"@ 5 SOA 5"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "zone")
	for _, tt := range []struct {
		budget  *memory.Budget
		maxSize int64
		want    string
	}{
		{memory.New(8<<20, memory.FromGroup), 0, "no memory for more transfers"},
		{memory.New(80<<20, memory.FromGroup), 1 << 20, "more than 1048576 bytes"},
		{memory.New(80<<20, memory.FromGroup), 0, "Loaded zone"},
	} {
		log := new(chaintest.Log)
		c := newCopy(options{origin: origin, file: file}, []*client{new(client)}, log.Logger(), newRoom(tt.budget, memory.Zones), newServer(chaintest.QuietLog(), nil))
		c.clients[0].limit.Store(tt.maxSize)
		if err := c.writeFile(z, time.Now()); err != nil {
			t.Fatal(err)
		}
		s := schedule{copy: c}
		s.load()
		c.stopExpiry()
		if !strings.Contains(log.String(), tt.want) || (s.zone != nil) != (tt.budget.Part(memory.Zones).Used > 0) {
			t.Errorf("max_size %d: got zone %v and %d bytes reserved, want %q in the log\n%s",
				tt.maxSize, s.zone != nil, tt.budget.Part(memory.Zones).Used, tt.want, log)
		}
		if used := tt.budget.Part(memory.Transfers).Used; used != 0 {
			t.Errorf("max_size %d: %d bytes reserved for transfers, want 0", tt.maxSize, used)
		}
	}
}
