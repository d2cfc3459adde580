package secondary

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/zone"
)

// since returns the differences from a version of a copy as text, sorted within each part.
func since(t *testing.T, c *zoneCopy, serial uint32) (lines string, ok bool) {
	t.Helper()
	records, ok := c.version().(zone.Differ).Since(serial)
	if !ok {
		return "", false
	}
	var parts [][]string
	for r := range records {
		rr, _, err := mdns.UnpackRR(r, 0)
		if err != nil {
			t.Fatal(err)
		}
		if soa, ok := rr.(*mdns.SOA); ok {
			parts = append(parts, []string{"SOA " + mdns.Field(soa, 3)})
		} else {
			at := &parts[len(parts)-1]
			*at = append(*at, rr.Header().Name+" "+mdns.Field(rr, 1))
		}
	}
	var all []string
	for _, p := range parts {
		slices.Sort(p[1:])
		all = append(all, p...)
	}
	return strings.Join(all, ", "), true
}

// A copy that other servers copy knows the differences between its versions: version by version as the
// primary has sent them, and those between two whole zones.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := memory.New(1<<30, memory.FromGroup)
		c, p, log := startCopyIn(t, 0, budget, func(c *zoneCopy) { c.sends.Store(true) })
		step := func(replies map[uint16][]string, serial uint32) {
			t.Helper()
			p.set(0, replies)
			c.notify()
			time.Sleep(2 * time.Second)
			if got := serialOf(c); got != serial {
				t.Fatalf("got serial number %d, want %d\n%s", got, serial, log)
			}
		}
		if _, ok := since(t, c, 5); ok {
			t.Error("the first version has a history")
		}

		step(map[uint16][]string{soaQuery: {"@ 5 SOA 7"}, ixfr: {
			"@ 5 SOA 7\n@ 5 SOA 5\na 5 A 192.0.2.1\n@ 5 SOA 6\nx 5 A 192.0.2.9\n@ 5 SOA 6\nx 5 A 192.0.2.9\n@ 5 SOA 7\nx 5 A 192.0.2.8\n@ 5 SOA 7",
		}}, 7)
		for serial, want := range map[uint32]string{
			5: "SOA 5, a.example.org. 192.0.2.1, SOA 6, x.example.org. 192.0.2.9, SOA 6, x.example.org. 192.0.2.9, SOA 7, x.example.org. 192.0.2.8",
			6: "SOA 6, x.example.org. 192.0.2.9, SOA 7, x.example.org. 192.0.2.8",
		} {
			if got, ok := since(t, c, serial); !ok || got != want {
				t.Errorf("since version %d: got %q, %v, want %q", serial, got, ok, want)
			}
		}

		step(map[uint16][]string{soaQuery: {"@ 5 SOA 9"}, ixfr: {"@ 5 SOA 9"}, axfr: {
			"@ 5 SOA 9\nb 5 A 192.0.2.2\nb 5 A 192.0.2.3\nx 9 A 192.0.2.8\nn.y 5 TXT y\n@ 5 SOA 9",
		}}, 9)
		want := "SOA 7, c.example.org. a.example.org., x.example.org. 192.0.2.8, SOA 9, b.example.org. 192.0.2.3, n.y.example.org. y, x.example.org. 192.0.2.8"
		if got, ok := since(t, c, 7); !ok || got != want {
			t.Errorf("since version 7: got %q, %v, want %q", got, ok, want)
		}
		if _, ok := since(t, c, 5); !ok {
			t.Error("the differences since version 5 are not known any more")
		}

		// Differences are sent with the present SOA record, and so begin with a version that had the same one.
		step(map[uint16][]string{soaQuery: {"@ 5 SOA 11"}, ixfr: {
			"@ 9 SOA 11\n@ 5 SOA 9\n@ 9 SOA 10\nz 5 A 192.0.2.1\n@ 9 SOA 10\nz 5 A 192.0.2.1\n@ 9 SOA 11\n@ 9 SOA 11",
		}}, 11)
		want = "SOA 10, z.example.org. 192.0.2.1, SOA 11"
		if got, ok := since(t, c, 10); !ok || got != want {
			t.Errorf("since version 10, with another TTL of the SOA record: got %q, %v, want %q", got, ok, want)
		}
		if got, ok := since(t, c, 9); ok {
			t.Errorf("since version 9, whose SOA record has another TTL: got %q, want none", got)
		}
		step(map[uint16][]string{soaQuery: {"@ 7 SOA 12"}, ixfr: {"@ 7 SOA 12"}, axfr: {"@ 7 SOA 12\nb 5 A 192.0.2.2\n@ 7 SOA 12"}}, 12)
		if got, ok := since(t, c, 11); ok {
			t.Errorf("since version 11, whose SOA record has another TTL: got %q, want none", got)
		}

		c.sends.Store(false)
		step(map[uint16][]string{soaQuery: {"@ 7 SOA 13"}, ixfr: {"@ 7 SOA 13\n@ 7 SOA 12\n@ 7 SOA 13\nz 5 A 192.0.2.1\n@ 7 SOA 13"}}, 13)
		if _, ok := since(t, c, 12); ok || c.room.journal.Bytes() != 0 {
			t.Errorf("a zone that is not sent to others: history known: %v, with %d bytes, want none", ok, c.room.journal.Bytes())
		}
	})
}

// The history has as much memory as it leaves free, and none that a new version needs: versions are received while
// the oldest differences are forgotten.
func TestHistoryLeavesMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := memory.New(8<<20, memory.FromGroup)
		c, p, log := startCopyIn(t, 0, budget, func(c *zoneCopy) { c.sends.Store(true) })
		const versions = 60
		records := func(serial int) string { // one more in each version
			var text strings.Builder
			for i := range 200 + serial {
				fmt.Fprintf(&text, "n%d.v%d 5 TXT %s\n", i, serial, strings.Repeat("x", 100))
			}
			return text.String()
		}
		for serial, before := 6, ""; serial < versions; serial++ {
			first, next := fmt.Sprintf("@ 5 SOA %d\n@ 5 SOA %d\n", serial, serial-1), fmt.Sprint("@ 5 SOA ", serial)
			p.set(0, map[uint16][]string{soaQuery: {next}, ixfr: {first + before, next + "\n" + records(serial) + next}})
			before = records(serial)
			c.notify()
			time.Sleep(2 * time.Second)
			if got := serialOf(c); got != uint32(serial) {
				t.Fatalf("got serial number %d, want %d\n%s", got, serial, log)
			}
			if part := budget.Part(memory.Zones); part.Used > part.Max || c.room.journal.Bytes() != int64(c.history.Load().journal.Bytes()) {
				t.Fatalf("version %d: %d of %d bytes are used, want no more; %d are counted for %d of the history",
					serial, part.Used, part.Max, c.room.journal.Bytes(), c.history.Load().journal.Bytes())
			}
		}

		if _, ok := since(t, c, versions-2); !ok {
			t.Error("the differences from the version before are not known")
		}
		if _, ok := since(t, c, 5); ok {
			t.Error("all differences are known: the test has filled no memory")
		}
		c.Stop()
		if used := budget.Part(memory.Zones).Used; used != 0 {
			t.Errorf("after Stop: %d bytes reserved, want 0", used)
		}
	})
}

// A copy has a version for others only if it serves and has its history: one that takes over a member has the two
// one after the other.
func TestVersionWithoutHistory(t *testing.T) {
	z, err := receiveAll(nil, message(t, axfr, "@ 5 SOA 5\n@ 5 SOA 5"))
	if err != nil {
		t.Fatal(err)
	}
	for _, serves := range []bool{false, true} {
		for _, has := range []bool{false, true} {
			c := newCopy(options{origin: origin}, nil, chaintest.QuietLog(), newRoom(nil, memory.Zones), nil)
			if serves {
				c.current.Store(z)
			}
			if has {
				c.history.Store(&version{Zone: z})
			}
			if got := c.version(); (got != nil) != (serves && has) {
				t.Errorf("serves: %v, with a history: %v: got version %v", serves, has, got)
			}
		}
	}
}
