package cluster

import (
	"context"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/internal/clock"
	"github.com/seamark/seamark/metrics"
)

// A Monitor is the log and the metrics of one source.
type Monitor struct {
	Log                     *slog.Logger
	Metrics                 *metrics.Registry
	Relists, Errors, Events [Kinds]*metrics.Counter // nil for kinds that the options do not ask for
	Sweeper                 *Sweeper

	kinds    []Kind
	received [Kinds]atomic.Int64 // times of package clock; 0 before the source runs
}

// NewMonitor returns the Monitor of a source that delivers these kinds.
func NewMonitor(kinds []Kind, log *slog.Logger, reg *metrics.Registry) *Monitor {
	m := &Monitor{Log: log, Metrics: reg, Sweeper: NewSweeper(runtime.GC, debug.FreeOSMemory), kinds: kinds}
	for _, kind := range kinds {
		name := kind.String()
		m.Relists[kind] = reg.Counter("seamark_kubernetes_relists_total", "Lists received completely, including the first.", "resource", name)
		m.Errors[kind] = reg.Counter("seamark_kubernetes_watch_errors_total", "Lists and watches that failed or ended early.", "resource", name)
		m.Events[kind] = reg.Counter("seamark_kubernetes_events_total", "Changes of single objects received.", "resource", name)
	}
	return m
}

// Run calls deliver, which receives the objects until ctx is done. Meanwhile it exports
// the age of the data and returns memory to the system.
func (m *Monitor) Run(ctx context.Context, deliver func()) {
	for _, kind := range m.kinds {
		m.Received(kind, time.Now())
		unregister := m.Metrics.TemporaryGauge("seamark_kubernetes_data_age_seconds", "Time since a list, an event or a bookmark of the watch was received.",
			func() float64 { return m.age(kind).Seconds() }, "resource", kind.String())
		defer unregister()
	}
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	sweeping.Go(func() { m.Sweeper.run(ctx) })
	deliver()
}

// Received records when a list, an event or a bookmark of a kind was received.
func (m *Monitor) Received(kind Kind, at time.Time) { m.received[kind].Store(int64(clock.At(at))) }

// age is the maximum before the source runs.
func (m *Monitor) age(kind Kind) time.Duration {
	at := m.received[kind].Load()
	if at == 0 {
		return math.MaxInt64
	}
	return clock.Now() - time.Duration(at)
}

// Age returns the age of the kind for which nothing was received for the longest time.
func (m *Monitor) Age() (age time.Duration) {
	for _, kind := range m.kinds {
		age = max(age, m.age(kind))
	}
	return age
}
