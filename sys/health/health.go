// Package health has the list of what is wrong with a server at present, which its status, its page,
// its log and the page of ready show.
//
// The part of the server that finds a problem calls Set on the Board of the process, and Clear once
// it has ended. Problems that show in metrics alone are added by package judge.
package health

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/order"
)

// A Severity tells how bad a condition is.
type Severity string

const (
	Critical Severity = "critical" // clients get wrong answers, or none
	Warning  Severity = "warning"  // it will become critical, or some answers suffer
	Note     Severity = "note"     // the server is healthy; it could have less work
)

func (s Severity) rank() int {
	switch s {
	case Critical:
		return 0
	case Warning:
		return 1
	}
	return 2
}

// A Condition is something that is wrong at present.
type Condition struct {
	Severity Severity `json:"severity"`
	// Alert is the alert that fires if the condition lasts; "" if there is none.
	Alert string `json:"alert,omitempty"`
	// Object is what the condition is about: an upstream, a kind of objects, a zone or a file.
	Object string `json:"object,omitempty"`
	// Text is a sentence without its final dot.
	Text string `json:"text"`
	// Since is when the condition began; zero if that is not known.
	Since time.Time `json:"since,omitzero"`
	// Next is what to do: a command, or a sentence without its final dot.
	Next string `json:"next,omitempty"`
	// Lost is the share of the queries of the last minutes that have no answer for this reason, 0 to 1;
	// 0 if it is not known.
	Lost float64 `json:"lost_share,omitempty"`
}

func (c *Condition) percent() int { return int(math.Round(100 * c.Lost)) }

// Remedy returns Next, or the page of the alert if there is none.
func (c *Condition) Remedy() string {
	if c.Next == "" && c.Alert != "" {
		return "read " + Runbook(c.Alert)
	}
	return c.Next
}

// Runbook returns the URL of the section about an alert.
func Runbook(alert string) string { return Page("how-to/alerts.md#" + strings.ToLower(alert)) }

// Page returns the URL of a page of the documentation, below docs.
func Page(path string) string { return "https://github.com/seamark/seamark/blob/main/docs/" + path }

// Real reports whether there is a condition that is no Note.
func Real(conditions []Condition) bool {
	return slices.ContainsFunc(conditions, func(c Condition) bool { return c.Severity != Note })
}

// Sort sorts conditions, the worst first: by their severity, then by the share of queries that have no
// answer, in percent. Of those that are equally bad the ones about an object are first, which are nearer to
// the cause, and then the oldest.
func Sort(conditions []Condition) {
	order.Slice(conditions, func(a, b Condition) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(b.percent(), a.percent()),
			cmp.Compare(min(1, len(b.Object)), min(1, len(a.Object))), a.Since.Compare(b.Since),
			cmp.Compare(a.Alert, b.Alert), cmp.Compare(a.Object, b.Object))
	})
}

// Summary returns one sentence about sorted conditions.
func Summary(conditions []Condition) string {
	switch {
	case len(conditions) == 0:
		return "Healthy."
	case conditions[0].Severity == Note:
		return "Healthy, but " + strings.TrimSuffix(conditions[0].Text, ".") + "."
	}
	text := strings.TrimSuffix(conditions[0].Text, ".") // that of a name
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// A Failure is the last error of an object, such as an upstream. It may be over.
type Failure struct {
	Object string    `json:"object"`
	Error  string    `json:"error"`
	At     time.Time `json:"at"`
}

// FailureOf returns the failure of an object; nil if there is none.
func FailureOf(all []Failure, object string) *Failure {
	i := slices.IndexFunc(all, func(f Failure) bool { return f.Object == object })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// Ago returns the error and how long ago it was, if that is seconds.
func (f *Failure) Ago(now time.Time) string {
	if age := now.Sub(f.At).Round(time.Second); age >= 2*time.Second {
		return fmt.Sprintf("%s, %v ago", f.Error, age)
	}
	return f.Error
}

// A Board has the present conditions that parts of the server have found, and the last errors of objects.
// A nil Board has none. Its methods are safe for concurrent use.
type Board struct {
	mu       sync.Mutex
	all      map[topic]Condition
	failures map[any]func() []Failure // by owner
}

// SetFailures sets the function that returns the failures of an owner's objects, until Forget is called.
func (b *Board) SetFailures(owner any, list func() []Failure) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures == nil {
		b.failures = map[any]func() []Failure{}
	}
	b.failures[owner] = list
}

// Failures returns the last failure of each object, sorted by object.
func (b *Board) Failures() (all []Failure) {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	lists := slices.Collect(maps.Values(b.failures))
	b.mu.Unlock()

	now := time.Now()
	for _, list := range lists {
		for _, f := range list() {
			f.At = OnClock(f.At, now)
			all = append(all, f)
		}
	}
	order.Slice(all, func(a, b Failure) int { return cmp.Or(cmp.Compare(a.Object, b.Object), b.At.Compare(a.At)) })
	return slices.CompactFunc(all, func(a, b Failure) bool { return a.Object == b.Object })
}

// OnClock returns a past time as the clock has it that reads now: what began ten minutes ago still did after
// the clock was set.
func OnClock(at, now time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return now.Add(at.Sub(now))
}

// A topic identifies a condition of one owner, such as a source of objects or a zone.
type topic struct{ owner, name any }

// Set adds a condition, or replaces the one with the same owner and name, which began at the same
// time. Since is set.
func (b *Board) Set(owner, name any, c Condition) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := topic{owner, name}
	c.Since = time.Now()
	if old, ok := b.all[at]; ok {
		c.Since = old.Since
	}
	if b.all == nil {
		b.all = map[topic]Condition{}
	}
	b.all[at] = c
}

// Clear removes a condition.
func (b *Board) Clear(owner, name any) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, topic{owner, name})
}

// Forget removes all conditions and failures of an owner, which has ended.
func (b *Board) Forget(owner any) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failures, owner)
	for at := range b.all {
		if at.owner == owner {
			delete(b.all, at)
		}
	}
}

// Conditions returns the present conditions, the worst first.
func (b *Board) Conditions() []Condition { return b.list(func(topic) bool { return true }) }

// Of returns the present conditions of an owner, the worst first.
func (b *Board) Of(owner any) []Condition {
	return b.list(func(at topic) bool { return at.owner == owner })
}

func (b *Board) list(selects func(topic) bool) (all []Condition) {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for at, c := range b.all {
		if selects(at) {
			c.Since = OnClock(c.Since, now)
			all = append(all, c)
		}
	}
	Sort(all)
	return all
}
