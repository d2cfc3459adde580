package zone_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// Size is about the memory that a builder uses for records of every form, so that a primary
// cannot use more than a limit of it.
func TestBuilderSize(t *testing.T) {
	label := func(i int) string { return fmt.Sprintf("\x08%08d", i) }
	for _, tt := range []struct {
		name   string
		count  int
		record func(i int) (owner string, t wire.Type, rdata string)
	}{
		{"short records", 20_000, func(i int) (string, wire.Type, string) { return label(i), wire.TypeA, "\x01\x02\x03\x04" }},
		{"long records", 500, func(i int) (string, wire.Type, string) {
			return label(i), wire.TypeTXT, strings.Repeat("\xff"+strings.Repeat("x", 255), 40)
		}},
		{"an RRset", 5000, func(i int) (string, wire.Type, string) { return "\x01n", wire.TypeTXT, "\x08" + label(i)[1:] }},
		{"large RRsets", 20_000, func(i int) (string, wire.Type, string) { return label(i / 1000), wire.TypeTXT, label(i) }},
		{"names of a hundred labels", 1000, func(i int) (string, wire.Type, string) {
			return strings.Repeat("\x01a", 100) + label(i), wire.TypeA, "\x01\x02\x03\x04"
		}},
		{"types", 20_000, func(i int) (string, wire.Type, string) { return label(i / 50), wire.Type(1000 + i%50), "xx" }},
	} {
		before := heapInUse()
		b := zone.NewBuilder("\x07example\x00")
		for i := range tt.count {
			owner, rtype, rdata := tt.record(i)
			if err := b.Add(owner+"\x07example\x00", rtype, 60, rdata); err != nil {
				t.Fatal(err)
			}
		}

		used, size := heapInUse()-before, b.Size()
		if float64(used) > 1.3*float64(size) || size > 2*used {
			t.Errorf("%s: got size %d with %d bytes of the heap, want about as many", tt.name, size, used)
		}
		if z := b.Zone(); z.Memory() > int64(size)*5/4+8<<10 {
			t.Errorf("%s: the zone needs %d bytes, the builder had %d", tt.name, z.Memory(), size)
		}
	}
}

func heapInUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
