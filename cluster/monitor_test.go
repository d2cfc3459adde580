package cluster

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/metrics"
)

// Data of a source that notices each change at once has no age; from the end of that on it has one.
func TestCurrentDataHasNoAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMonitor([]Kind{Services}, slog.New(slog.DiscardHandler), new(metrics.Registry))
		wants := func(want time.Duration) {
			t.Helper()
			if got, ok := m.Age(); got != want || !ok {
				t.Errorf("got age %v, received %v, want %v", got, ok, want)
			}
		}

		m.Received(Services, time.Now())
		time.Sleep(time.Minute)
		wants(time.Minute)
		m.SetCurrent(true)
		time.Sleep(time.Hour)
		wants(0)

		m.SetCurrent(false)
		wants(0)
		time.Sleep(time.Minute)
		m.SetCurrent(false)
		wants(time.Minute)
	})
}
