package apiserver

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A problem that lasts is logged at growing intervals, with the age of the data.
func TestReporterRepeatInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		begin := time.Now()
		known := true
		s := &reporter{log: slog.New(slog.NewTextHandler(&log, nil)), age: func() (time.Duration, bool) { return time.Since(begin) + time.Second, known }}
		var at []time.Duration
		for end := begin.Add(5 * time.Hour); time.Now().Before(end); time.Sleep(time.Second) {
			before := log.Len()
			s.problem("server", "", "API server unreachable, retrying", "address", "10.0.0.1")
			if log.Len() > before {
				at = append(at, time.Since(begin))
			}
		}
		want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 123, 183, 243} // minutes
		if len(at) != len(want) {
			t.Fatalf("logged at %v, want at minutes %d", at, want)
		}
		for i := range want {
			if at[i] != want[i]*time.Minute {
				t.Errorf("line %d at %v, want at %v", i, at[i], want[i]*time.Minute)
			}
		}
		lines := strings.Split(log.String(), "\n")
		if strings.Contains(lines[0], "data_age") || !strings.HasSuffix(lines[1], "address=10.0.0.1 data_age=1m1s") {
			t.Errorf("lines %q and %q, want the age in the second", lines[0], lines[1])
		}
		log.Reset()
		known = false
		time.Sleep(longestRepeat)
		s.problem("server", "", "API server unreachable, retrying", "address", "10.0.0.1")
		if line := log.String(); !strings.HasSuffix(line, "address=10.0.0.1\n") {
			t.Errorf("line %q before any data was received, want no age", line)
		}
		log.Reset()
		s.problem("server", "certificate", "another problem")
		s.recovered("server", "API server reachable again")
		s.recovered("server", "API server reachable again")
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d lines for another problem and its end, want 2:\n%s", n, log.String())
		}
	})
}

// The condition of an unreachable API server has its address once, a next step, and what is served, if that
// is known.
func TestReporterCondition(t *testing.T) {
	args := []any{"address", "10.0.0.1:6443", "error", "dial tcp 10.0.0.1:6443: connect: connection refused"}
	c := condition("API server unreachable, retrying", args, false)
	const want = "API server unreachable, 10.0.0.1:6443: connection refused"
	if c.Text != want || c.Remedy() != "seamark doctor" {
		t.Errorf("got %q and the next step %q, want %q and seamark doctor", c.Text, c.Remedy(), want)
	}
	if c := condition("API server unreachable, retrying", args, true); c.Text != want+"; the last known state is served" {
		t.Errorf("with data: got %q, want %q and that the last known state is served", c.Text, want)
	}
}
