package handler

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/seamark/seamark/metrics"
)

// describeProcess adds what is true of the process as a whole, under the names
// that Prometheus's own client gives it. What the operating system does not
// tell is left out.
func describeProcess(r *metrics.Registry) {
	r.Counter("coredns_panics_total", "A metrics that counts the number of panics.")

	r.Gauge("go_goroutines", "Number of goroutines that currently exist.", func() float64 { return float64(runtime.NumGoroutine()) })
	r.Gauge("go_info", "Information about the Go environment.", func() float64 { return 1 }, "version", runtime.Version())
	r.Gauge("go_memstats_heap_inuse_bytes", "Number of heap bytes that are in use.", func() float64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapInuse)
	})
	if _, ok := readProcess(); !ok {
		return
	}
	field := func(get func(process) float64) func() float64 {
		return func() float64 { p, _ := readProcess(); return get(p) }
	}
	r.Gauge("process_resident_memory_bytes", "Resident memory size in bytes.", field(func(p process) float64 { return p.memory }))
	r.CounterFunc("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", field(func(p process) float64 { return p.cpu }))
	r.Gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", field(func(p process) float64 { return p.start }))
	r.Gauge("process_open_fds", "Number of open file descriptors.", func() float64 {
		fds, _ := os.ReadDir("/proc/self/fd")
		return float64(len(fds))
	})
}

// A process is what Linux says of ours: bytes, seconds, seconds since 1970.
type process struct{ memory, cpu, start float64 }

// ticks is the unit of times in /proc: USER_HZ, on every architecture of Go's.
const ticks = 100

// readProcess reads proc(5).
func readProcess() (p process, ok bool) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return p, false
	}
	// The name, in parentheses, may hold anything; state is the field behind.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const utime, stime, starttime, rss = 14 - 3, 15 - 3, 22 - 3, 24 - 3
	if len(fields) <= rss {
		return p, false
	}
	number := func(i int) float64 {
		n, _ := strconv.ParseFloat(string(fields[i]), 64)
		return n
	}
	p.memory = number(rss) * float64(os.Getpagesize())
	p.cpu = (number(utime) + number(stime)) / ticks
	p.start = bootTime() + number(starttime)/ticks
	return p, true
}

// bootTime is in seconds since 1970.
func bootTime() float64 {
	stat, _ := os.ReadFile("/proc/stat")
	for line := range bytes.Lines(stat) {
		if text, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			n, _ := strconv.ParseFloat(string(bytes.TrimSpace(text)), 64)
			return n
		}
	}
	return float64(time.Now().Unix())
}
