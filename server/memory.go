package server

import (
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/memory"
)

// showMemory adds the metrics of the memory budget. They stay: the budget is that of the process.
func showMemory(r *metrics.Registry, b *memory.Budget) {
	if b == nil {
		return
	}
	r.Gauge("seamark_memory_total_bytes", "Memory that is divided among the parts of the server.",
		func() float64 { return float64(b.Total()) })
	r.Gauge("seamark_memory_own_bytes", "Memory that is kept for answers from the server's own data.",
		func() float64 { return float64(b.Own()) })

	r.CounterFunc("seamark_memory_tight_total", "Collections that left almost no memory below the limit, so that no part grows.",
		func() float64 { return float64(b.Tights()) })

	for c := range memory.NumConsumers {
		r.Gauge("seamark_memory_used_bytes", "Memory in use by a part of the server.",
			func() float64 { return float64(b.Part(c).Used) }, "part", c.String())
		r.Gauge("seamark_memory_max_bytes", "Memory that a part of the server can have at most, if others use little.",
			func() float64 { return float64(b.Max(c)) }, "part", c.String())
		r.CounterFunc("seamark_memory_refused_total", "How often there was no more memory for a part of the server.",
			func() float64 { return float64(b.Part(c).Refused) }, "part", c.String())
	}
}
