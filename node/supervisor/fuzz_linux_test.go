package supervisor

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/seamark/seamark/server/handover"
)

// FuzzMessages: messages of a worker in any order do not end the supervisor. The gate is open only
// while a worker serves that has not stopped, and is not opened again after that.
func FuzzMessages(f *testing.F) {
	kinds := []handover.Kind{handover.Hello, kindOpen, handover.End, handover.Serving, kindStopping}
	f.Add([]byte{0, 1, 2, 3, 4}) // as a worker sends them
	f.Add([]byte{4})
	f.Add([]byte{3, 1, 3, 4, 1, 3})

	f.Fuzz(func(t *testing.T, messages []byte) {
		gate, replies := new(fakeCapture), 0
		w := &worker{reply: func(uint64, error) { replies++ }}
		s := &supervisor{
			Options: Options{
				Log: slog.New(slog.DiscardHandler), Open: func(func(int, uint64)) (Capture, error) { return gate, nil },
			},
			shared: new(shared), age: func() time.Duration { return 0 }, worker: w,
		}

		wanted, serves, stopped := 0, false, false
		for _, m := range messages {
			kind := kinds[int(m)%len(kinds)]
			s.handle(event{kind: kind})
			s.check()

			if kind == kindOpen || kind == handover.End || kind == kindStopping {
				wanted++
			}
			serves, stopped = serves || kind == handover.Serving, stopped || kind == kindStopping
			want := serves && !stopped && s.capture != nil
			if s.open != want || s.shared.open.Load() != want {
				t.Fatalf("%v: the gate is open: %t, as shared: %t, want %t", messages, s.open, s.shared.open.Load(), want)
			}
		}

		disabled := slices.Index(gate.calls, "disable")
		if replies != wanted || disabled >= 0 && slices.Contains(gate.calls[disabled:], "enable") {
			t.Errorf("%v: got %d replies, and the calls %q, want %d and the gate closed after it is disabled",
				messages, replies, gate.calls, wanted)
		}
	})
}
