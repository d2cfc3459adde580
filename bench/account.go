//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time, user and system, of all threads of a process,
// ended ones included, with nanosecond resolution. /proc/PID/stat has the same in
// ticks of ten milliseconds.
func cpuTime(pid int) (time.Duration, error) {
	const schedClock = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// cpuTimes returns the CPU time of each server while f runs.
func cpuTimes(servers []*server, f func() error) ([]time.Duration, error) {
	times := make([]time.Duration, len(servers))
	add := func(sign time.Duration) error {
		for i, s := range servers {
			d, err := cpuTime(s.pid())
			if err != nil {
				return err
			}
			times[i] += sign * d
		}
		return nil
	}

	if err := add(-1); err != nil {
		return nil, err
	}
	if err := f(); err != nil {
		return nil, err
	}
	return times, add(1)
}

// processes returns a process and its descendants.
func processes(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		// Each thread has its children. A process that has ended has none.
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pids[i]))
		for _, file := range files {
			text, _ := os.ReadFile(file)
			for _, field := range strings.Fields(string(text)) {
				if child, err := strconv.Atoi(field); err == nil {
					pids = append(pids, child)
				}
			}
		}
	}
	return pids
}

// programTime returns the time that the BPF programs of a process have run, in whatever
// process: the kernel counts it while countPrograms is on.
func programTime(pid int) (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file) // gone if the descriptor was closed
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "run_time_ns:"); ok {
				n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
				sum += time.Duration(n)
			}
		}
	}
	return sum
}

// countPrograms makes the kernel count the run time of BPF programs, until the returned
// function is called.
func countPrograms() (end func(), err error) {
	const file = "/proc/sys/kernel/bpf_stats_enabled"
	before, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return func() { _ = os.WriteFile(file, before, 0) }, os.WriteFile(file, []byte("1"), 0)
}

// tick is the unit of /proc, which has been 1/100 s for all user space since
// Linux 2.6.
const tick = 10 * time.Millisecond

// userTime returns the CPU time that a process spent outside the kernel.
func userTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseUserTime(text)
}

func parseUserTime(stat []byte) (time.Duration, error) {
	// The second field is a name in parentheses that may contain any byte.
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, errors.New("/proc/PID/stat: no name")
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 13 {
		return 0, errors.New("/proc/PID/stat: too few fields")
	}
	n, err := strconv.ParseInt(fields[11], 10, 64) // field 14, utime
	if err != nil {
		return 0, fmt.Errorf("/proc/PID/stat: %w", err)
	}
	return time.Duration(n) * tick, nil
}

// busyTime returns the busy time of all CPUs of the machine.
func busyTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusyTime(text)
}

func parseBusyTime(stat []byte) (time.Duration, error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, errors.New("/proc/stat: no line of all CPUs")
	}
	// user nice system idle iowait irq softirq steal; guest time is included in
	// user.
	var busy int64
	for i, text := range fields[1:9] {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 {
			busy += n
		}
	}
	return time.Duration(busy) * tick, nil
}

// A footprint is a process's memory, in bytes.
type footprint struct{ resident, anonymous, peak int64 }

func memory(pid int) (footprint, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return footprint{}, err
	}
	return parseMemory(text)
}

func parseMemory(status []byte) (f footprint, err error) {
	for key, size := range map[string]*int64{"VmRSS": &f.resident, "RssAnon": &f.anonymous, "VmHWM": &f.peak} {
		if *size, err = parseSize(status, key); err != nil {
			return footprint{}, fmt.Errorf("/proc/PID/status: %w", err)
		}
	}
	return f, nil
}

// parseSize returns the size of a line "KEY: 12 kB", in bytes.
func parseSize(text []byte, key string) (int64, error) {
	_, after, _ := strings.Cut("\n"+string(text), "\n"+key+":")
	fields := strings.Fields(after)
	if len(fields) < 2 || fields[1] != "kB" {
		return 0, fmt.Errorf("no %s", key)
	}
	n, err := strconv.ParseInt(fields[0], 10, 64)
	return n << 10, err
}

// proportional returns the memory of a process in which a shared page counts for each
// process by its part.
func proportional(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	return parseSize(text, "Pss")
}

// forgetPeak resets the peak of a process to its present size.
func forgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}
