package status

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// work takes steps of a millisecond in turns of a client.
func work(t *testing.T, turns *Turns, client string, steps int) {
	turn, err := turns.Begin(t.Context(), netip.MustParseAddr(client))
	if err != nil {
		t.Errorf("%s: %v", client, err)
		return
	}
	defer turn.End()
	for range steps {
		time.Sleep(time.Millisecond)
		if err := turn.Continue(); err != nil {
			t.Errorf("%s: %v", client, err)
		}
	}
}

func TestTurnsHalfOfOneProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, begin := NewTurns(), time.Now()
		var requests sync.WaitGroup
		for range 10 {
			requests.Go(func() { work(t, turns, "192.0.2.1", 20) })
		}
		requests.Go(func() { work(t, turns, "192.0.2.2", 20) })

		// Another client has every third turn, though the first one has ten requests: four turns of
		// 5 ms, each beside two others, with a pause after each.
		work(t, turns, "192.0.2.3", 20)
		if took, most := time.Since(begin), (4+1)*3*2*turnTime; took > most {
			t.Errorf("20 steps of a client took %v, want at most %v", took, most)
		}
		requests.Wait()
		if took, least := time.Since(begin), 2*12*20*time.Millisecond-turnTime; took < least {
			t.Errorf("240 steps of a millisecond took %v, want at least %v with the pauses", took, least)
		}
	})
}

func TestTurnOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns()
		turn, err := turns.Begin(t.Context(), netip.MustParseAddr("192.0.2.1"))
		if err != nil {
			t.Fatal(err)
		}
		err = turn.Outside(func() error {
			work(t, turns, "192.0.2.2", 1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		failed := errors.New("failed")
		if err := turn.Outside(func() error { return failed }); err != failed {
			t.Errorf("got error %v, want %v", err, failed)
		}
		turn.End() // which has no turn
		work(t, turns, "192.0.2.2", 1)
	})
}

func TestTurnCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns()
		held, err := turns.Begin(t.Context(), netip.MustParseAddr("192.0.2.1"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		turn, err := turns.Begin(ctx, netip.MustParseAddr("192.0.2.2"))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want that of the context", err)
		}
		turn.End()
		held.End()
		work(t, turns, "192.0.2.3", 1)
	})
}
