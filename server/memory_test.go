package server

import (
	"strings"
	"testing"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/memory"
)

// The metrics of the memory budget have each part, and queries wait in their part of it.
func TestMemoryMetrics(t *testing.T) {
	b, r := memory.New(40<<20, memory.FromGroup), new(metrics.Registry)
	if err := b.Reserve(memory.Cache, 4096); err != nil {
		t.Fatal(err)
	}
	_ = b.Reserve(memory.TCP, 1<<40)
	showMemory(r, b)
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"seamark_memory_total_bytes 4.194304e+07", `seamark_memory_used_bytes{part="cache"} 4096`, `seamark_memory_max_bytes{part="cache"} 5.24288e+06`,
		`seamark_memory_refused_total{part="tcp"} 1`, `seamark_memory_refused_total{part="zones"} 0`,
	} {
		if !strings.Contains(text.String(), want+"\n") {
			t.Errorf("the metrics lack %s:\n%s", want, &text)
		}
	}

	for total, want := range map[int64]int{16 << 20: 68, 35 << 20: 149, 8 << 30: maxParked} {
		p := &Plan{opts: Options{Memory: memory.New(total, memory.FromGroup)}}
		if got := p.parkingRoom(); got != want {
			t.Errorf("with %d bytes: %d queries may be parked, want %d", total, got, want)
		}
	}
}
