package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/health"
)

// A Monitor is the log and the metrics of one source.
type Monitor struct {
	Log                     *slog.Logger
	Metrics                 *metrics.Registry
	Relists, Errors, Events [Kinds]*metrics.Counter // nil for kinds that the options do not select
	Sweeper                 *Sweeper
	// Health has what is wrong with the source, whose owner is the Sink; nil reports nothing.
	Health *health.Board

	kinds    []Kind
	current  atomic.Bool
	started  atomic.Int64        // time of package clock; 0 before the source runs
	received [Kinds]atomic.Int64 // times of package clock; 0 before the first data is received
}

// NewMonitor returns the Monitor of a source that delivers these kinds.
func NewMonitor(kinds []Kind, log *slog.Logger, reg *metrics.Registry) *Monitor {
	m := &Monitor{Log: log, Metrics: reg, Sweeper: NewSweeper(runtime.GC, debug.FreeOSMemory), kinds: kinds}
	for _, kind := range kinds {
		name := kind.String()
		m.Relists[kind] = reg.Counter("seamark_kubernetes_relists_total",
			"Lists received completely, including the first.", "resource", name)
		m.Errors[kind] = reg.Counter("seamark_kubernetes_watch_errors_total",
			"Lists and watches that failed or ended early.", "resource", name)
		m.Events[kind] = reg.Counter("seamark_kubernetes_events_total",
			"Changes of single objects received.", "resource", name)
	}
	return m
}

// Run calls deliver, which receives the objects until ctx is done. Meanwhile it exports
// the age of the data and returns memory to the system.
func (m *Monitor) Run(ctx context.Context, deliver func()) {
	m.started.Store(int64(clock.Now()))
	for _, kind := range m.kinds {
		// Of several clusters the oldest data count.
		unregister := m.Metrics.SharedGauge("seamark_kubernetes_data_age_seconds",
			"Time since a list, an event or a bookmark of the watch was received.", math.Max,
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

// SetCurrent sets whether a change would be noticed at once, as of a folder whose files are watched. Then
// the data has no age.
func (m *Monitor) SetCurrent(current bool) {
	if m.current.Swap(current) && !current { // it has been current until now
		for _, kind := range m.kinds {
			m.Received(kind, time.Now())
		}
	}
}

// age returns the time since data of the kind was received, or, before that, since
// the source runs.
func (m *Monitor) age(kind Kind) time.Duration {
	if m.current.Load() {
		return 0
	}
	return clock.Now() - time.Duration(cmp.Or(m.received[kind].Load(), m.started.Load()))
}

// Age returns the age of the oldest kind of data. ok is false if nothing has been
// received.
func (m *Monitor) Age() (age time.Duration, ok bool) {
	for _, kind := range m.kinds {
		if m.received[kind].Load() != 0 {
			age, ok = max(age, m.age(kind)), true
		}
	}
	return age, ok
}
