package kubetest

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// soakSamples is how often the use of resources is measured in a soak with a report.
const soakSamples = 60

// A soakWatch measures what the server uses, and how long its replies take, over a whole soak:
// whatever grows with time, and not with load, shows in the difference of its last and first third.
type soakWatch struct {
	metrics string // the URL of the server's metrics
	pid     int

	mu      sync.Mutex
	took    map[string][]time.Duration // since the last sample, by transport
	samples []sample
}

// A sample is the state at the end of an interval. Its values are by name.
type sample struct {
	at     time.Duration // since the start
	values map[string]float64
}

// A flatness is how much more a value may be in the last third of a soak than in the first, in
// the median: a share of it, and an amount for values that are small.
type flatness struct {
	name, unit string
	share      float64
	amount     float64
}

// flat are the values that may not grow. Replies may take twice as long, since the machine may have
// other work; a queue that grows takes much longer.
func flat() []flatness {
	all := []flatness{
		{"resident memory", "MB", 0.1, 4},
		{"heap in use", "MB", 0.2, 4},
		{"goroutines", "", 0.1, 20},
		{"threads", "", 0.2, 5},
		{"open files", "", 0.1, 10},
	}
	for _, transport := range soakTransports {
		all = append(all, flatness{transport.name, "ms", 1, 1})
	}
	return all
}

// answered records how long a reply took.
func (w *soakWatch) answered(transport string, d time.Duration) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took[transport] = append(w.took[transport], d)
}

// run takes samples until ctx ends.
func (w *soakWatch) run(ctx context.Context, t *testing.T, interval time.Duration) {
	start := time.Now()
	for ticks := time.NewTicker(interval); ; {
		select {
		case <-ctx.Done():
			ticks.Stop()
			return
		case <-ticks.C:
		}

		values, err := w.sample()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			t.Logf("no sample after %v: %v", time.Since(start), err)
			continue
		}
		w.samples = append(w.samples, sample{time.Since(start), values})
	}
}

// sample reads what the process uses now.
func (w *soakWatch) sample() (map[string]float64, error) {
	values := map[string]float64{}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.pid))
	if err != nil {
		return nil, err
	}
	values["open files"] = float64(len(files))

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "VmRSS:":
			kilobytes, _ := strconv.ParseFloat(fields[1], 64)
			values["resident memory"] = kilobytes / 1024
		case "Threads:":
			values["threads"], _ = strconv.ParseFloat(fields[1], 64)
		}
	}

	client := http.Client{Timeout: soakPatience}
	resp, err := client.Get(w.metrics)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		switch series, value, _ := strings.Cut(lines.Text(), " "); series {
		case "go_goroutines":
			values["goroutines"], _ = strconv.ParseFloat(value, 64)
		case "go_memstats_heap_inuse_bytes":
			bytes, _ := strconv.ParseFloat(value, 64)
			values["heap in use"] = bytes / (1 << 20)
		}
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	for transport, took := range w.took {
		if len(took) > 0 {
			values[transport] = median(took).Seconds() * 1000
		}
		w.took[transport] = took[:0]
	}
	return values, nil
}

// median returns the middle one of values, which it sorts.
func median[T float64 | time.Duration](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}

// part returns the median of a value in the samples from one share of the time to another.
func (w *soakWatch) part(name string, from, to float64) (float64, bool) {
	var values []float64
	for _, s := range w.samples[int(float64(len(w.samples))*from):int(float64(len(w.samples))*to)] {
		if v, ok := s.values[name]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return 0, false
	}
	return median(values), true
}

// report writes the report, and fails the test for each value that has grown. The first sixth of the
// time, in which caches fill, does not count.
func (w *soakWatch) report(s *soak, file string, duration time.Duration) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Soak of %v\n\n", duration)
	fmt.Fprintf(&b, "%s, %s/%s, %d processors, seed %d, ended %s.\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), s.seed, time.Now().UTC().Format("2006-01-02 15:04 MST"))

	fmt.Fprintf(&b, "| value | unit | first third | last third | limit | |\n|---|---|---|---|---|---|\n")
	for _, f := range flat() {
		first, ok := w.part(f.name, 1.0/6, 1.0/2)
		last, okLast := w.part(f.name, 2.0/3, 1)
		limit := first*(1+f.share) + f.amount
		verdict := "flat"
		if !ok || !okLast || last > limit {
			verdict = "grows"
			s.Errorf("%s: got %.4g %s in the last third, want at most %.4g (%.4g in the first)", f.name, last, f.unit, limit, first)
		}
		fmt.Fprintf(&b, "| %s | %s | %.4g | %.4g | %.4g | %s |\n", f.name, f.unit, first, last, limit, verdict)
	}

	fmt.Fprintf(&b, "\nLatencies are medians of the cluster's names, with all faults.\n\n")
	fmt.Fprintf(&b, "| transport | queries | right | SERVFAIL of the failing upstream | wrong | lost |\n|---|---|---|---|---|---|\n")
	for _, a := range s.accounts {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d |\n", a.client, a.sent, a.right, a.servfail, a.wrong, a.lost)
	}
	fmt.Fprintf(&b, "\nFaults:")
	for _, f := range s.allFaults() {
		fmt.Fprintf(&b, " %s %d;", f.what, s.faults[f.what])
	}
	fmt.Fprintf(&b, " from the end of a fault to right answers: %s\n", s.delays)

	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		s.Fatal(err)
	}
	s.Logf("%s:\n%s", file, &b)
}
