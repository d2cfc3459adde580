package kubedns

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/seamark/seamark/internal/kubednsconfig"
	"github.com/seamark/seamark/metrics"
)

// A state is what a source has seen of its ConfigMap, and what came of it. One
// goroutine owns it.
type state struct {
	source           string // for the log
	log              *slog.Logger
	apply            func(kubednsconfig.Config)
	check            func(kubednsconfig.Config) error // of what a kubednsconfig.Config makes, beyond what it says; nil is none
	applied, invalid *metrics.Counter
	valid            atomic.Bool // what was seen last; for who scrapes

	seen    bool              // anything at all
	data    map[string]string // as it was last
	err     string            // if it could not be read
	unknown []string          // keys, of which has been told
	given   bool              // a kubednsconfig.Config has been, which is
	config  kubednsconfig.Config
}

// newState counts under the name of a source, until drop.
func newState(kind, name string, log *slog.Logger, reg *metrics.Registry, apply func(kubednsconfig.Config)) (s *state, drop func()) {
	const help = "Changes of the ConfigMap kube-dns that were seen, the first state too, by whether they were good."
	counter := func(result string) *metrics.Counter {
		return reg.Counter("seamark_kubedns_config_updates_total", help, "source", name, "result", result)
	}
	s = &state{source: "kubedns " + kind + " " + name, log: log, apply: apply, applied: counter("applied"), invalid: counter("invalid")}
	s.valid.Store(true)
	return s, reg.TemporaryGauge("seamark_kubedns_config_valid", "1, or 0 while the ConfigMap kube-dns that is there is not good and an earlier one holds.", func() float64 {
		if s.valid.Load() {
			return 1
		}
		return 0
	}, "source", name)
}

// take looks at the data, or at the reason why there is none, and does nothing if
// they are what they were.
func (s *state) take(data map[string]string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if s.seen && text == s.err && maps.Equal(data, s.data) {
		return
	}
	s.seen, s.data, s.err = true, data, text
	s.ignore(kubednsconfig.UnknownKeys(data))
	c, parseErr := kubednsconfig.Parse(data)
	wrong := split(cmp.Or(err, parseErr))
	if len(wrong) == 0 && s.check != nil {
		if err := s.check(c); err != nil {
			wrong = []error{err}
		}
	}
	if len(wrong) > 0 {
		s.refuse(wrong)
		return
	}
	s.applied.Add(1)
	again := !s.valid.Swap(true)
	switch {
	case !s.given || !c.Equal(s.config):
		s.log.Info(fmt.Sprintf("%s: %s", s.source, cmp.Or(c.String(), "the defaults")))
		s.give(c)
	case again:
		s.log.Info(s.source + ": good again, and what it was before")
	default:
		s.log.Debug(s.source + ": another text that says the same")
	}
}

// split returns the errors that err joins.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// ignore names the keys that were not there before.
func (s *state) ignore(keys []string) {
	for _, key := range keys {
		if !slices.Contains(s.unknown, key) {
			s.log.Debug(fmt.Sprintf("%s: unknown key %s is ignored", s.source, kubednsconfig.Quote(key)))
		}
	}
	s.unknown = keys
}

// refuse keeps the last good Config; before there was one it is the default.
func (s *state) refuse(wrong []error) {
	const most = 10 // in a line
	s.valid.Store(false)
	var why []string
	for _, err := range wrong[:min(len(wrong), most)] {
		why = append(why, err.Error())
	}
	if more := len(wrong) - len(why); more > 0 {
		why = append(why, fmt.Sprintf("and %d more", more))
	}
	stays := "the last good one stays"
	if !s.given || s.config.Equal(kubednsconfig.Config{}) {
		stays = "the defaults stay"
	}
	s.log.Warn(fmt.Sprintf("%s is refused: %s: %s", s.source, strings.Join(why, "; "), stays))
	s.invalid.Add(1)
	if !s.given {
		s.give(kubednsconfig.Config{})
	}
}

func (s *state) give(c kubednsconfig.Config) {
	s.given, s.config = true, c
	s.apply(c)
}
