package kubedns

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/metrics"
)

// A state is the last known state of a ConfigMap and the Config in use.
type state struct {
	log              *slog.Logger
	apply            func(kubednsconfig.Config)
	check            func(kubednsconfig.Config) error // may be nil
	applied, invalid *metrics.Counter
	valid            atomic.Bool // the last known state is valid; read by the metrics page

	mu      sync.Mutex        // of what follows
	known   bool              // update was called
	data    map[string]string // of the last update
	err     string            // of the last update
	unknown []string          // keys that were logged

	hasConfig bool // apply was called
	config    kubednsconfig.Config
}

// newState registers the metrics of a source; unregister removes the gauge.
func newState(
	source string, log *slog.Logger, reg *metrics.Registry,
	check func(kubednsconfig.Config) error, apply func(kubednsconfig.Config),
) (s *state, unregister func()) {
	const help = "Changes of the ConfigMap kube-dns, including the first state, by result."
	counter := func(result string) *metrics.Counter {
		return reg.Counter("seamark_kubedns_config_updates_total", help, "source", source, "result", result)
	}
	s = &state{
		log: log.With("configmap", source), check: check, apply: apply,
		applied: counter("applied"), invalid: counter("invalid"),
	}
	s.valid.Store(true)

	valid := func() float64 {
		if s.valid.Load() {
			return 1
		}
		return 0
	}
	return s, reg.SharedGauge("seamark_kubedns_config_valid",
		"1 if the ConfigMap kube-dns is valid, 0 while an earlier state is in use instead.", math.Min, valid, "source", source)
}

// update applies data, unless it equals the data of the last update or is invalid. err is
// the error of reading it.
func (s *state) update(data map[string]string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if s.known && text == s.err && maps.Equal(data, s.data) {
		return
	}

	s.known, s.data, s.err = true, data, text
	s.logUnknown(kubednsconfig.UnknownKeys(data))

	c, parseErr := kubednsconfig.Parse(data)
	err = cmp.Or(err, parseErr)
	if err == nil && s.check != nil {
		err = s.check(c)
	}
	if err != nil {
		s.refuse(err)
		return
	}
	s.accept(c)
}

// recheck applies the last data if they were refused and pass a check now, because the Corefile has changed.
func (s *state) recheck(check func(kubednsconfig.Config) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known || s.err != "" || s.valid.Load() {
		return
	}
	if c, err := kubednsconfig.Parse(s.data); err == nil && check(c) == nil {
		s.accept(c)
	}
}

// accept applies a valid Config.
func (s *state) accept(c kubednsconfig.Config) {
	wasValid := s.valid.Swap(true)
	switch {
	case !s.hasConfig || !c.Equal(s.config):
		s.log.Info("Applied kube-dns's ConfigMap", "config", cmp.Or(c.String(), "defaults"))
		s.set(c)
	case !wasValid:
		s.log.Info("kube-dns's ConfigMap is valid again and unchanged")
	default:
		s.log.Debug("kube-dns's ConfigMap changed without effect")
	}
	s.applied.Add(1)
}

// logUnknown logs keys that were not in the last state.
func (s *state) logUnknown(keys []string) {
	for _, key := range keys {
		if !slices.Contains(s.unknown, key) {
			s.log.Debug("Ignored an unknown key of kube-dns's ConfigMap", "key", key)
		}
	}
	s.unknown = keys
}

// refuse keeps the Config in use; before the first valid state it applies the default.
func (s *state) refuse(err error) {
	s.valid.Store(false)
	inUse := "last valid state"
	if !s.hasConfig || s.config.Equal(kubednsconfig.Config{}) {
		inUse = "defaults"
	}
	s.log.Warn("Refused kube-dns's ConfigMap", "error", oneLine(err), "in_use", inUse)
	s.invalid.Add(1)
	if !s.hasConfig {
		s.set(kubednsconfig.Config{})
	}
}

func (s *state) set(c kubednsconfig.Config) {
	s.hasConfig, s.config = true, c
	s.apply(c)
}

// oneLine returns the first ten lines of an error's text, joined.
func oneLine(err error) string {
	const limit = 10
	lines := strings.Split(err.Error(), "\n")
	text := strings.Join(lines[:min(len(lines), limit)], "; ")
	if more := len(lines) - limit; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}
