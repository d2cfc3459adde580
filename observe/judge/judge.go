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
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
)

const (
	// interval is the time between two samples of the metrics, and between two looks for what to log.
	interval = 30 * time.Second
	// look is the time between two looks at what is wrong, so that the beginnings of conditions are known.
	look = 5 * time.Second
	// kept is the time that samples cover.
	kept = 30 * time.Minute
	// lostMuch is the share of lost queries from which on a condition is critical, as in the alert of replies.
	lostMuch = 0.03
)

// A Judge judges one server. It is safe for concurrent use.
type Judge struct {
	metrics  *metrics.Registry
	board    *health.Board
	recorder *traffic.Recorder
	log      *slog.Logger
	task     *follow.Task
	unready  atomic.Pointer[func() []health.Condition]

	mu      sync.Mutex
	names   map[string]int // of series, with their place in a sample
	samples []sample       // the oldest first; New has taken the first
	begun   map[key]span
	logged  map[key]health.Condition // by run alone
}

// A key identifies a condition of a rule while its text and its severity change.
type key struct {
	rule   int
	object string
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
	j := &Judge{
		metrics: m, board: board, recorder: r, log: log,
		names: map[string]int{}, begun: map[key]span{}, logged: map[key]health.Condition{},
	}
	j.sample(time.Now())
	j.task = follow.Go(j.run)
	return j
}

// Stop implements config.Stopper.
func (j *Judge) Stop() { j.task.Stop() }

func (j *Judge) run(ctx context.Context) {
	n := 0
	for now := range clock.Ticks(ctx, look) {
		_, own := j.judge(now)
		if n++; n%int(interval/look) == 0 {
			j.logChanges(own)
			j.sample(now)
		}
	}
}

// sample keeps the present values of the metrics.
func (j *Judge) sample(now time.Time) {
	values := j.metrics.Values(isUsed)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forgetSeries(values)
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

// forgetSeries bounds the names: it removes those of series that have ended, such as of upstreams that
// reloads have removed, once they are most.
func (j *Judge) forgetSeries(present map[string]float64) {
	if len(j.names) <= 2*len(present)+100 {
		return
	}
	names := make(map[string]int, len(present))
	for name := range present {
		names[name] = len(names)
	}
	for i, s := range j.samples {
		values := make([]float64, len(names))
		for name, at := range names {
			if old, ok := j.names[name]; ok && old < len(s.values) {
				values[at] = s.values[old]
			}
		}
		j.samples[i].values = values
	}
	j.names = names
}

// SetUnready sets the function that returns a condition for each directive of the present plan that
// is not ready.
func (j *Judge) SetUnready(unready func() []health.Condition) { j.unready.Store(&unready) }

// Conditions returns what is wrong at present, the worst first.
func (j *Judge) Conditions(now time.Time) []health.Condition {
	all, _ := j.judge(now)
	return all
}

// Failures returns the last errors of upstreams.
func (j *Judge) Failures() []health.Failure { return j.board.Failures() }

// judge returns all present conditions, the worst first, and the ones that the judge has to log itself.
func (j *Judge) judge(now time.Time) (all []health.Condition, own map[key]health.Condition) {
	all = j.board.Conditions()
	var unready []health.Condition
	if f := j.unready.Load(); f != nil {
		unready = (*f)()
	}
	e := evidence{
		now: now, values: j.metrics.Values(isUsed), recorder: j.recorder, failures: j.board.Failures(),
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	e.judge = j
	maps.DeleteFunc(j.begun, func(_ key, s span) bool { return now.Sub(s.last) > forgetAfter })
	own = map[key]health.Condition{}
	add := func(rule int, c health.Condition) {
		if c.Lost > lostMuch {
			c.Severity = health.Critical
		}
		k := key{rule, c.Object}
		c.Since = health.OnClock(j.beginning(k, c.Since, now), now)
		all = append(all, c)
		own[k] = c
	}
	for _, c := range unready {
		add(-1, c)
	}

	// A part of the server that reports a condition itself knows more of it than its metrics.
	known := slices.Clone(all)
	for i, r := range rules {
		for _, c := range r.judge(&e) {
			c.Alert = r.alert
			if !slices.ContainsFunc(known, func(k health.Condition) bool { return covers(k, c) }) {
				add(i, c)
			}
		}
	}

	health.Sort(all)
	return all, own
}

// covers reports whether a known condition has the alert of c, and its object or all.
func covers(known, c health.Condition) bool {
	return c.Alert != "" && known.Alert == c.Alert && (known.Object == "" || known.Object == c.Object || c.Object == "")
}

// beginning returns when a condition began: when it was found first, unless it says so itself.
func (j *Judge) beginning(k key, since, now time.Time) time.Time {
	s, ok := j.begun[k]
	if !ok {
		s.first = now
	}
	s.last = now
	j.begun[k] = s
	if !since.IsZero() {
		return since
	}
	return s.first
}

// logChanges logs the conditions that have begun, changed their severity or ended since the last call. Notes are not
// logged: what is left as one has ended.
func (j *Judge) logChanges(own map[key]health.Condition) {
	for k, c := range own {
		if j.logged[k].Severity != c.Severity && c.Severity != health.Note {
			j.log.Warn("health: "+c.Text, "severity", string(c.Severity), "alert", c.Alert)
		}
	}
	for k, c := range j.logged {
		if now, ok := own[k]; (!ok || now.Severity == health.Note) && c.Severity != health.Note {
			j.log.Info("health: Over: "+c.Text, "alert", c.Alert, "duration", time.Since(c.Since).Round(time.Second))
		}
	}
	j.logged = own
}
