package metrics

import (
	"bytes"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RegisterProcess adds the series process_*, under the names that Prometheus's own
// client uses. It adds none if the system has no /proc.
func (r *Registry) RegisterProcess() {
	if _, ok := readProcess(); !ok {
		return
	}

	field := func(get func(process) float64) func() float64 {
		return func() float64 { p, _ := readProcess(); return get(p) }
	}
	r.Gauge("process_resident_memory_bytes", "Resident memory size in bytes.",
		field(func(p process) float64 { return p.memory }))
	r.Gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.",
		field(func(p process) float64 { return p.virtual }))
	r.CounterFunc("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.",
		field(func(p process) float64 { return p.cpu }))
	r.Gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.",
		field(func(p process) float64 { return p.start }))

	r.Gauge("process_open_fds", "Number of open file descriptors.", func() float64 {
		fds, _ := os.ReadDir("/proc/self/fd")
		return float64(len(fds))
	})
	r.Gauge("process_max_fds", "Maximum number of open file descriptors.",
		func() float64 { return limit("Max open files") })
	r.Gauge("process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.",
		func() float64 { return limit("Max address space") })

	r.CounterFunc("process_network_receive_bytes_total", "Number of bytes received by the process over the network.",
		func() float64 { return octets("InOctets") })
	r.CounterFunc("process_network_transmit_bytes_total", "Number of bytes sent by the process over the network.",
		func() float64 { return octets("OutOctets") })
}

// A process holds values of proc(5): bytes, seconds, seconds since 1970.
type process struct{ memory, virtual, cpu, start float64 }

// ticks is USER_HZ, the unit of times in /proc, which is the same on all
// architectures.
const ticks = 100

// readProcess reads /proc/self/stat.
func readProcess() (p process, ok bool) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return p, false
	}
	// The name, in parentheses, may contain any bytes; the next field is the state.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const utime, stime, starttime, vsize, rss = 14 - 3, 15 - 3, 22 - 3, 23 - 3, 24 - 3
	if len(fields) <= rss {
		return p, false
	}
	number := func(i int) float64 {
		n, _ := strconv.ParseFloat(string(fields[i]), 64)
		return n
	}
	p.memory = number(rss) * float64(os.Getpagesize())
	p.virtual = number(vsize)
	p.cpu = (number(utime) + number(stime)) / ticks
	p.start = bootTime() + number(starttime)/ticks
	return p, true
}

// limit returns a soft resource limit; an unlimited resource has the largest number
// of the kernel.
func limit(name string) float64 {
	text, _ := os.ReadFile("/proc/self/limits")
	for line := range strings.Lines(string(text)) {
		if values, ok := strings.CutPrefix(line, name); ok {
			soft := strings.Fields(values)[0]
			if soft == "unlimited" {
				return math.MaxUint64
			}
			n, _ := strconv.ParseFloat(soft, 64)
			return n
		}
	}
	return 0
}

// octets returns a counter of the process's network namespace. The file has a line
// of names and a line of values.
func octets(name string) float64 {
	text, _ := os.ReadFile("/proc/self/net/netstat")
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] != "IpExt:":
		case names == nil:
			names = fields
		default:
			if i := slices.Index(names, name); i >= 0 && i < len(fields) {
				n, _ := strconv.ParseFloat(fields[i], 64)
				return n
			}
		}
	}
	return 0
}

// bootTime returns the seconds since 1970.
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
