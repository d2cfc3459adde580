package status

import (
	"context"
	"net/netip"
	"time"

	"github.com/seamark/seamark/sys/slots"
)

// turnTime is how long a turn takes at most. It is within the time for which Go lets a goroutine
// run, so that queries do not wait for a page.
const turnTime = 5 * time.Millisecond

// maxPause bounds the time without a turn after one that took much longer, as on a busy machine.
const maxPause = time.Second

// Turns divide half of one processor among the pages that take long to make: one of them is made
// at a time, for a turn, and then none for as long. Clients have turns one after the other.
type Turns struct {
	slot  *slots.Pool
	after time.Time // of the next turn; guarded by the slot
}

// NewTurns returns Turns of which none is taken.
func NewTurns() *Turns { return &Turns{slot: slots.New(1, 1)} }

// A Turn is that of one request. Its methods are not safe for concurrent use.
type Turn struct {
	turns  *Turns
	ctx    context.Context // of the request
	client netip.Addr
	began  time.Time // zero between two turns
}

// Begin blocks until the client has a turn, or ctx ends. If it returns no error, the caller must
// call End.
func (t *Turns) Begin(ctx context.Context, client netip.Addr) (*Turn, error) {
	turn := &Turn{turns: t, ctx: ctx, client: client}
	return turn, turn.begin()
}

func (t *Turn) begin() error {
	if err := t.ctx.Err(); err != nil { // a free slot does not wait for it
		return err
	}
	if err := t.turns.slot.Acquire(t.ctx, t.client); err != nil {
		return err
	}
	time.Sleep(time.Until(t.turns.after))
	t.began = time.Now()
	return nil
}

// End ends the turn. It does nothing between two turns.
func (t *Turn) End() {
	if t.began.IsZero() {
		return
	}
	t.turns.after = time.Now().Add(min(time.Since(t.began), maxPause))
	t.began = time.Time{}
	t.turns.slot.Release(t.client)
}

// Continue waits for another turn if the present one has taken its time. Each step of a long
// request calls it. After an error there is no turn.
func (t *Turn) Continue() error {
	if time.Since(t.began) < turnTime {
		return nil
	}
	return t.Outside(func() error { return nil })
}

// Outside calls f, which may block, between two turns. After an error there is no turn.
func (t *Turn) Outside(f func() error) error {
	t.End()
	if err := f(); err != nil {
		return err
	}
	return t.begin()
}
