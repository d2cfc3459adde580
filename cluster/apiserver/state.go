package apiserver

import (
	"log/slog"
	"sync"
	"time"

	"github.com/seamark/seamark/metrics"
)

// A problem that lasts is logged again after firstRepeat, and then after twice the
// time each, up to longestRepeat.
const (
	firstRepeat   = time.Minute
	longestRepeat = time.Hour
)

// A state holds the present problems of a source, by topic. A problem is met again
// with every attempt; it is logged when it begins, at growing intervals while it
// lasts, and when it ends.
type state struct {
	log      *slog.Logger
	metrics  *metrics.Registry    // nil counts nothing
	age      func() time.Duration // of the oldest data; nil if unknown
	mu       sync.Mutex
	problems map[string]*problem
}

type problem struct {
	what   string
	logged time.Time
	repeat time.Duration // interval until it is logged again
}

// trouble logs msg if the topic has had no problem, or another one, or this one for
// some time.
func (s *state) trouble(topic, what, msg string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	p := s.problems[topic]
	switch {
	case p == nil || p.what != what:
		if s.problems == nil {
			s.problems = map[string]*problem{}
		}
		s.problems[topic] = &problem{what, now, firstRepeat}
	case now.Sub(p.logged) < p.repeat:
		return
	default:
		p.logged, p.repeat = now, min(2*p.repeat, longestRepeat)
		if s.age != nil {
			args = append(args[:len(args):len(args)], "data_age", s.age().Round(time.Second))
		}
	}
	s.log.Warn(msg, args...)
}

// fine logs msg if the topic had a problem.
func (s *state) fine(topic, msg string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.problems[topic]; ok {
		delete(s.problems, topic)
		s.log.Info(msg, args...)
	}
}
