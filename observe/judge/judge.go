// Package judge judges a server: it lists what is wrong with it at present, the worst first, from
// three sources: the conditions that parts of the server have found themselves (package health),
// its metrics, by the rules of the alerts that are shipped with it, and the recorded queries.
//
// The metrics of the last half hour are kept at an interval of 30 s, since a rule such as "panics
// within ten minutes" needs those of before.
package judge

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/sys/health"
)

const (
	// interval is the time between two samples of the metrics.
	interval = 30 * time.Second
	// kept is the time that samples cover.
	kept = 30 * time.Minute
)

// A Judge judges one server. It is safe for concurrent use.
type Judge struct {
	metrics  *metrics.Registry
	board    *health.Board
	recorder *traffic.Recorder
	log      *slog.Logger
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	names   map[string]int // of series, with their place in a sample
	samples []sample       // the oldest first
	begun   map[string]span
	logged  map[string]health.Condition
}

// A span is when a condition was found first and last.
type span struct{ first, last time.Time }

// forgetAfter is how long a condition has to be absent until it begins anew.
const forgetAfter = 2 * interval

// A sample has the values of series at one time. One that has no value yet is 0.
type sample struct {
	at     time.Time
	values []float64
}

// New returns the judge of a server, which runs until Stop is called.
func New(m *metrics.Registry, board *health.Board, r *traffic.Recorder, log *slog.Logger) *Judge {
	ctx, cancel := context.WithCancel(context.Background())
	j := &Judge{
		metrics: m, board: board, recorder: r, log: log, cancel: cancel,
		names: map[string]int{}, begun: map[string]span{}, logged: map[string]health.Condition{},
	}
	j.sample(time.Now())
	j.running.Go(func() { j.run(ctx) })
	return j
}

// Stop implements config.Stopper.
func (j *Judge) Stop() {
	j.cancel()
	j.running.Wait()
}

func (j *Judge) run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			j.logChanges(j.Conditions(now))
			j.sample(now)
		}
	}
}

// sample keeps the present values of the metrics.
func (j *Judge) sample(now time.Time) {
	values := j.metrics.Values(isUsed)
	j.mu.Lock()
	defer j.mu.Unlock()
	s := sample{now, make([]float64, len(j.names), len(j.names)+len(values))}
	for name, value := range values {
		i, ok := j.names[name]
		if !ok {
			i = len(j.names)
			j.names[name] = i
			s.values = append(s.values, 0)
		}
		s.values[i] = value
	}
	old := slices.IndexFunc(j.samples, func(s sample) bool { return now.Sub(s.at) <= kept })
	j.samples = append(j.samples[max(old, 0):], s)
}

// Conditions returns what is wrong at present, the worst first, with what the caller has found.
func (j *Judge) Conditions(now time.Time, found ...health.Condition) []health.Condition {
	all := append(found, j.board.Conditions()...)
	e := evidence{now: now, values: j.metrics.Values(isUsed), recorder: j.recorder}

	j.mu.Lock()
	defer j.mu.Unlock()
	e.judge = j
	// A part of the server that reports a condition itself knows more of it than its metrics.
	known := map[string]bool{}
	for _, c := range all {
		known[c.Alert] = c.Alert != ""
	}
	for _, r := range rules {
		if known[r.alert] {
			continue
		}
		for _, c := range r.judge(&e) {
			c.Alert = r.alert
			all = append(all, c)
		}
	}

	j.date(all, now)
	health.Sort(all)
	return all
}

// date sets when the conditions without a beginning began: when they were found first.
func (j *Judge) date(all []health.Condition, now time.Time) {
	maps.DeleteFunc(j.begun, func(_ string, s span) bool { return now.Sub(s.last) > forgetAfter })
	for i := range all {
		c := &all[i]
		if !c.Since.IsZero() {
			continue
		}
		key := c.Alert + " " + c.Object
		s, ok := j.begun[key]
		if !ok {
			s.first = now
		}
		s.last = now
		j.begun[key], c.Since = s, s.first
	}
}

// logChanges logs the conditions that have begun and ended since the last call. Parts of the server
// log what they find themselves.
func (j *Judge) logChanges(all []health.Condition) {
	j.mu.Lock()
	defer j.mu.Unlock()
	own := j.board.Conditions()
	present := map[string]health.Condition{}
	for _, c := range all {
		if c.Severity == health.Note || slices.Contains(own, c) {
			continue
		}
		key := c.Alert + " " + c.Object
		present[key] = c
		if _, ok := j.logged[key]; !ok {
			j.log.Warn("health: "+c.Text, "severity", string(c.Severity), "alert", c.Alert)
		}
	}
	for key, c := range j.logged {
		if _, ok := present[key]; !ok {
			j.log.Info("health: Over: "+c.Text, "alert", c.Alert, "duration", time.Since(c.Since).Round(time.Second))
		}
	}
	j.logged = present
}
