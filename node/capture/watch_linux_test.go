package capture

import (
	"testing"
	"time"
)

// A pause begins when packets enter the rules and none passes for a second, in one of both
// directions. It ends with a test that passes; each test that does not doubles it.
func TestWatch(t *testing.T) {
	const minPause = defaultPause
	type step struct {
		after                             time.Duration // since the step before
		sent, received, answers, returned uint64
		want                              state
	}
	for name, steps := range map[string][]step{
		"all pass":            {{0, 5, 5, 5, 5, exempting}, {time.Minute, 9, 9, 9, 9, exempting}},
		"a slow server":       {{0, 5, 5, 0, 0, exempting}, {time.Minute, 9, 9, 0, 0, exempting}},
		"one packet is lost":  {{0, 5, 4, 4, 4, exempting}, {time.Minute, 5, 4, 4, 4, exempting}, {0, 6, 5, 5, 5, exempting}},
		"no traffic":          {{0, 0, 0, 0, 0, exempting}, {time.Hour, 0, 0, 0, 0, exempting}},
		"they pass again":     {{0, 5, 0, 0, 0, exempting}, {silence / 2, 7, 1, 0, 0, exempting}, {silence / 2, 9, 3, 0, 0, exempting}},
		"queries are dropped": {{0, 5, 5, 5, 5, exempting}, {0, 7, 5, 5, 5, exempting}, {silence / 2, 7, 5, 5, 5, exempting}, {silence / 2, 7, 5, 5, 5, pausing}},
		"replies are dropped": {{0, 5, 5, 5, 0, exempting}, {silence, 6, 6, 6, 0, pausing}},
		"tests": {
			{0, 2, 0, 0, 0, exempting}, {silence, 2, 0, 0, 0, pausing},
			{minPause - 1, 0, 0, 0, 0, pausing}, {1, 0, 0, 0, 0, probing},
			{time.Hour, 0, 0, 0, 0, probing}, {0, 1, 0, 0, 0, probing}, {silence, 1, 0, 0, 0, pausing}, // the query is dropped
			{2*minPause - 1, 0, 0, 0, 0, pausing}, {1, 0, 0, 0, 0, probing},
			{0, 1, 1, 0, 0, probing}, {silence, 1, 1, 1, 0, pausing}, // the reply is dropped
			{4 * minPause, 0, 0, 0, 0, probing},
			{0, 1, 1, 0, 0, probing}, {silence, 1, 1, 0, 0, exempting}, // the server has not replied yet
			{0, 2, 0, 0, 0, exempting}, {silence, 2, 0, 0, 0, pausing}, {minPause, 0, 0, 0, 0, probing},
			{0, 1, 1, 1, 1, probing}, {silence, 1, 1, 1, 1, exempting},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, now := &watch{address: "10.96.0.10", minPause: minPause}, time.Now()
			for i, s := range steps {
				now = now.Add(s.after)
				n := counters{queriesSent + w.address: s.sent, queriesReceived + w.address: s.received, repliesSent + w.address: s.answers, repliesReceived + w.address: s.returned}
				before, got := w.state, w.next(n, now)
				if got != s.want {
					t.Fatalf("step %d: got state %d, want %d", i, got, s.want)
				}
				if got != before {
					w.enter(got, now)
					w.restart()
				}
			}
		})
	}
}
