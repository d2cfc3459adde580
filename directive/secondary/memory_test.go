package secondary

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/sys/heap"
)

// The garbage of a transfer does not remain in memory.
func TestGarbageOfTransfer(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nothing else collects it
	synctest.Test(t, func(t *testing.T) {
		c, p, log := follow(t, 0)
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
		if unused, live := heap.Unused(); unused > max(minGarbage, live/2)+1<<20 {
			t.Errorf("got %d bytes of garbage and free memory beside %d in use, want at most half", unused, live)
		}
	})
}
