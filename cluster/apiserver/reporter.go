package apiserver

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/health"
)

// A problem that lasts is logged again after firstRepeat, and then after twice the
// time each, up to longestRepeat.
const (
	firstRepeat   = time.Minute
	longestRepeat = time.Hour
)

// A reporter logs the problems of a source, reports them on its board, and counts its requests. A
// problem occurs again with every attempt; it is logged when it begins, at growing intervals while
// it lasts, and when it ends.
type reporter struct {
	board    *health.Board // may be nil
	owner    any           // of the conditions on it
	log      *slog.Logger
	metrics  *metrics.Registry                   // nil counts nothing
	age      func() (age time.Duration, ok bool) // of the oldest data; ok is false without data
	mu       sync.Mutex
	problems map[string]*problem // the present ones, by topic
}

type problem struct {
	what   string
	logged time.Time
	repeat time.Duration // interval until it is logged again
}

// problem logs msg if the topic has had no problem, or another one, or this one for
// some time.
func (r *reporter) problem(topic, what, msg string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	age, served := r.age()
	r.board.Set(r.owner, topic, condition(msg, args, served))
	now := time.Now()
	p := r.problems[topic]
	switch {
	case p == nil || p.what != what:
		if r.problems == nil {
			r.problems = map[string]*problem{}
		}
		r.problems[topic] = &problem{what, now, firstRepeat}
	case now.Sub(p.logged) < p.repeat:
		return
	default:
		p.logged, p.repeat = now, min(2*p.repeat, longestRepeat)
		if served {
			args = append(args[:len(args):len(args)], "data_age", age.Round(time.Second))
		}
	}
	r.log.Warn(msg, args...)
}

// condition returns the condition of a problem, by its message and attributes, and whether data that was
// received before is served. Its object is that of the list or watch, "" for one of the API server.
func condition(msg string, args []any, served bool) health.Condition {
	c := health.Condition{Severity: health.Warning, Alert: "SeamarkWatchErrors", Text: strings.TrimSuffix(msg, ", retrying")}
	c.Next = "seamark doctor"
	address := "" // of the API server, which an error repeats
	for i := 0; i+1 < len(args); i += 2 {
		switch value := fmt.Sprint(args[i+1]); args[i] {
		case "kind", "namespace", "name":
			c.Object = strings.TrimSpace(c.Object + " " + value)
			c.Text += ", " + args[i].(string) + " " + value
		case "address":
			address = value
			c.Text += ", " + value
		case "error":
			value = strings.TrimPrefix(value, "dial tcp "+address+": ")
			c.Text += ": " + strings.TrimPrefix(value, "connect: ")
		}
	}
	if served {
		c.Text += "; the last known state is served"
	}
	return c
}

// recovered logs msg if the topic had a problem.
func (r *reporter) recovered(topic, msg string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.problems[topic]; ok {
		r.board.Clear(r.owner, topic)
		delete(r.problems, topic)
		r.log.Info(msg, args...)
	}
}
