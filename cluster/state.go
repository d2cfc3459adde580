package cluster

import (
	"log/slog"
	"sync"

	"github.com/seamark/seamark/metrics"
)

// A state is what is wrong with a source at the moment, by topic. It makes one
// line of each change: a failure that is met again with every attempt is no
// news.
type state struct {
	log     *slog.Logger
	metrics *metrics.Registry // nil counts nothing
	mu      sync.Mutex
	wrong   map[string]string
}

// trouble logs msg unless the topic's trouble is already this one.
func (s *state) trouble(topic, what, msg string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, ok := s.wrong[topic]; ok && was == what {
		return
	}
	if s.wrong == nil {
		s.wrong = map[string]string{}
	}
	s.wrong[topic] = what
	s.log.Warn(msg, args...)
}

// fine logs msg if there was trouble.
func (s *state) fine(topic, msg string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.wrong[topic]; ok {
		delete(s.wrong, topic)
		s.log.Info(msg, args...)
	}
}
