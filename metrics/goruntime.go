package metrics

import (
	"math"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"time"
)

// A goSeries is one of the series that Prometheus's own client has for Go programs:
// the sum of some metrics of the runtime.
type goSeries struct{ name, help, runtime string }

// goGauges are read without stopping the world, unlike runtime.MemStats, whose
// fields most of them are named after.
var goGauges = [...]goSeries{
	{"go_goroutines", "Number of goroutines that currently exist.", "/sched/goroutines:goroutines"},
	{"go_gc_gogc_percent", "Heap size target percentage configured by the user, otherwise 100.", "/gc/gogc:percent"},
	{"go_gc_gomemlimit_bytes", "Go runtime memory limit configured by the user, otherwise math.MaxInt64.",
		"/gc/gomemlimit:bytes"},
	{"go_sched_gomaxprocs_threads", "The current runtime.GOMAXPROCS setting.", "/sched/gomaxprocs:threads"},
	{"go_memstats_alloc_bytes", "Number of bytes allocated in heap and currently in use.",
		"/memory/classes/heap/objects:bytes"},
	{"go_memstats_sys_bytes", "Number of bytes obtained from system.", "/memory/classes/total:bytes"},
	{"go_memstats_heap_alloc_bytes", "Number of heap bytes allocated and currently in use.",
		"/memory/classes/heap/objects:bytes"},
	{"go_memstats_heap_sys_bytes", "Number of heap bytes obtained from system.",
		"/memory/classes/heap/objects:bytes /memory/classes/heap/unused:bytes " +
			"/memory/classes/heap/released:bytes /memory/classes/heap/free:bytes"},
	{"go_memstats_heap_idle_bytes", "Number of heap bytes waiting to be used.",
		"/memory/classes/heap/released:bytes /memory/classes/heap/free:bytes"},
	{"go_memstats_heap_inuse_bytes", "Number of heap bytes that are in use.",
		"/memory/classes/heap/objects:bytes /memory/classes/heap/unused:bytes"},
	{"go_memstats_heap_released_bytes", "Number of heap bytes released to OS.", "/memory/classes/heap/released:bytes"},
	{"go_memstats_heap_objects", "Number of currently allocated objects.", "/gc/heap/objects:objects"},
	{"go_memstats_stack_inuse_bytes", "Number of bytes in use by the stack allocator.",
		"/memory/classes/heap/stacks:bytes"},
	{"go_memstats_stack_sys_bytes", "Number of bytes obtained from system for stack allocator.",
		"/memory/classes/heap/stacks:bytes /memory/classes/os-stacks:bytes"},
	{"go_memstats_mspan_inuse_bytes", "Number of bytes in use by mspan structures.",
		"/memory/classes/metadata/mspan/inuse:bytes"},
	{"go_memstats_mspan_sys_bytes", "Number of bytes used for mspan structures obtained from system.",
		"/memory/classes/metadata/mspan/inuse:bytes /memory/classes/metadata/mspan/free:bytes"},
	{"go_memstats_mcache_inuse_bytes", "Number of bytes in use by mcache structures.",
		"/memory/classes/metadata/mcache/inuse:bytes"},
	{"go_memstats_mcache_sys_bytes", "Number of bytes used for mcache structures obtained from system.",
		"/memory/classes/metadata/mcache/inuse:bytes /memory/classes/metadata/mcache/free:bytes"},
	{"go_memstats_buck_hash_sys_bytes", "Number of bytes used by the profiling bucket hash table.",
		"/memory/classes/profiling/buckets:bytes"},
	{"go_memstats_gc_sys_bytes", "Number of bytes used for garbage collection system metadata.",
		"/memory/classes/metadata/other:bytes"},
	{"go_memstats_other_sys_bytes", "Number of bytes used for other system allocations.",
		"/memory/classes/other:bytes"},
	{"go_memstats_next_gc_bytes", "Number of heap bytes when next garbage collection will take place.",
		"/gc/heap/goal:bytes"},
}

var goCounters = [...]goSeries{
	{"go_memstats_alloc_bytes_total", "Total number of bytes allocated in heap until now, even if released already.",
		"/gc/heap/allocs:bytes"},
	{"go_memstats_mallocs_total", "Total number of heap objects allocated, both live and gc-ed.",
		"/gc/heap/allocs:objects /gc/heap/tiny/allocs:objects"},
	{"go_memstats_frees_total", "Total number of heap objects frees.",
		"/gc/heap/frees:objects /gc/heap/tiny/allocs:objects"},
}

// RegisterGo adds the series go_*, under the names that Prometheus's own client
// uses.
func (r *Registry) RegisterGo() {
	for _, g := range goGauges {
		r.Gauge(g.name, g.help, sum(g.runtime))
	}
	for _, c := range goCounters {
		r.CounterFunc(c.name, c.help, sum(c.runtime))
	}

	r.Gauge("go_info", "Information about the Go environment.",
		func() float64 { return 1 }, "version", runtime.Version())
	r.Gauge("go_threads", "Number of OS threads created.", func() float64 {
		n, _ := runtime.ThreadCreateProfile(nil)
		return float64(n)
	})
	r.Gauge("go_memstats_last_gc_time_seconds", "Number of seconds since 1970 of last garbage collection.", lastGC)
	r.SummaryFunc("go_gc_duration_seconds",
		"A summary of the wall-time pause (stop-the-world) duration in garbage collection cycles.", gcPauses)
}

func lastGC() float64 {
	var stats debug.GCStats
	if debug.ReadGCStats(&stats); stats.NumGC == 0 {
		return 0
	}
	return float64(stats.LastGC.UnixNano()) / float64(time.Second)
}

func gcPauses() Quantiles {
	q := Quantiles{Shares: []float64{0, 0.25, 0.5, 0.75, 1}}
	stats := debug.GCStats{PauseQuantiles: make([]time.Duration, len(q.Shares))}
	debug.ReadGCStats(&stats)
	for _, pause := range stats.PauseQuantiles {
		q.Values = append(q.Values, pause.Seconds())
	}
	q.Sum, q.Count = stats.PauseTotal.Seconds(), uint64(stats.NumGC)
	return q
}

// sum returns a function that adds up metrics of the runtime, whose names are separated by
// spaces. Metrics that this version of Go does not have are zero.
func sum(names string) func() float64 {
	return func() (total float64) {
		for name := range strings.FieldsSeq(names) {
			total += number(read(name))
		}
		return total
	}
}

func read(name string) metrics.Value {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value
}

func number(v metrics.Value) float64 {
	switch v.Kind() {
	case metrics.KindUint64:
		return float64(v.Uint64())
	case metrics.KindFloat64:
		return v.Float64()
	}
	return 0
}

// RegisterAllGo adds all metrics of package runtime/metrics, under the names that
// Prometheus's own client uses.
func (r *Registry) RegisterAllGo() {
	for _, d := range metrics.All() {
		name := goName(d)
		value := func() float64 { return number(read(d.Name)) }
		switch {
		case d.Kind == metrics.KindFloat64Histogram:
			r.HistogramFunc(name, d.Description, func() Distribution { return distribution(d.Name) })
		case d.Cumulative:
			r.CounterFunc(name, d.Description, value)
		default:
			r.Gauge(name, d.Description, value)
		}
	}
}

// goName returns go_gc_cycles_total_gc_cycles_total for /gc/cycles/total:gc-cycles.
func goName(d metrics.Description) string {
	at, unit, _ := strings.Cut(d.Name, ":")
	at = strings.NewReplacer("/", "_", "-", "_").Replace(strings.TrimPrefix(path.Clean(at), "/"))
	unit = strings.NewReplacer("/", "_per_", "-", "_", "*", "_").Replace(unit)

	name := "go_" + at + "_" + unit
	if d.Cumulative && d.Kind != metrics.KindFloat64Histogram {
		name += "_total"
	}
	return name
}

// distribution reads a histogram of the runtime. Since it has hundreds of buckets,
// buckets whose bounds differ by less than a factor of two are merged. The runtime
// keeps no sum; this one takes each value as the middle of its bucket.
func distribution(name string) (d Distribution) {
	v := read(name)
	if v.Kind() != metrics.KindFloat64Histogram {
		return Distribution{Counts: []uint64{0}}
	}

	h, pending := v.Float64Histogram(), uint64(0)
	for i, n := range h.Counts {
		low, high := h.Buckets[i], h.Buckets[i+1]
		pending += n
		if n > 0 {
			d.Sum += float64(n) * middle(low, high)
		}

		k := len(d.Bounds)
		if !math.IsInf(high, 1) && (k == 0 || d.Bounds[k-1] <= 0 || high >= 2*d.Bounds[k-1]) {
			d.Bounds, d.Counts, pending = append(d.Bounds, high), append(d.Counts, pending), 0
		}
	}
	d.Counts = append(d.Counts, pending)
	return d
}

func middle(low, high float64) float64 {
	switch {
	case math.IsInf(low, -1):
		return high
	case math.IsInf(high, 1):
		return low
	}
	return (low + high) / 2
}
