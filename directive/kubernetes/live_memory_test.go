package kubernetes

import (
	"testing"
	"time"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/zone"
)

// The journals of a cluster's zones count as memory of zones, and have as much as they leave free.
func TestLiveJournalMemory(t *testing.T) {
	d := defaultOptions()
	ix := load(d.newIndex(), namespaceObject("shop"))
	h := d.handler(t, ix)
	h.memory = memory.New(8<<20, memory.FromGroup)
	l := serveLive(t, h, time.Now)

	first, _ := h.Version(h.primary).Serial()
	var previous uint32
	for i := range 60 {
		previous, _ = h.Version(h.primary).Serial()
		replaceEndpoints(l, i, 50)

		var journals int64
		for _, z := range l.zones {
			journals += int64(z.current.Load().journal.Bytes())
		}
		if part := h.memory.Part(memory.Zones); part.Used != journals || part.Used > part.Max {
			t.Fatalf("version %d: %d of %d bytes are used, want those of the journals, %d", i, part.Used, part.Max, journals)
		}
	}

	v := h.Version(h.primary).(zone.Differ)
	if _, ok := v.Since(first); ok {
		t.Error("differences since the first version are known: the test has filled no memory")
	}
	if _, ok := v.Since(previous); !ok {
		t.Error("differences since the version before are not known")
	}

	l.Stop()
	if used := h.memory.Part(memory.Zones).Used; used != 0 {
		t.Errorf("after Stop: %d bytes reserved, want 0", used)
	}
}
