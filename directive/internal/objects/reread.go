package objects

import (
	"context"
	"time"

	"github.com/seamark/seamark/cluster"
)

const (
	// memoryWait is how long an object waits that did not fit into the server's memory.
	memoryWait = time.Minute
	// rereadWait is how long an object waits that could not be read again, or has no room in the turns.
	rereadWait = time.Second
)

var _ cluster.Rereader = (*Objects)(nil)

// SetReader implements cluster.Rereader.
func (x *Objects) SetReader(read cluster.ReadObject) {
	x.reader.Store(&read)
	x.reread.Send()
}

// rereadAll reads objects again until ctx ends.
func (x *Objects) rereadAll(ctx context.Context) {
	for ctx.Err() == nil {
		if wait := x.Reread(ctx); wait > 0 {
			await(ctx, x.reread, wait)
		}
	}
}

// Reread reads the oldest object that has to be read again from the source, and returns zero, or how
// long to wait for the next.
func (x *Objects) Reread(ctx context.Context) (wait time.Duration) {
	read := x.reader.Load()
	x.mu.Lock()
	o, wait := x.nextWanted(time.Now())
	before := x.wanted[o]
	x.mu.Unlock()
	switch {
	case read == nil:
		return Idle
	case o == nil:
		return wait
	}

	object, err := (*read)(ctx, o.Kind(), o.Key())
	x.mu.Lock()
	defer x.mu.Unlock()
	w, ok := x.wanted[o]
	switch {
	case !ok || w != before: // the watch has delivered another state, which may be newer
	case err != nil:
		x.wanted[o] = want{time.Now().Add(rereadWait), w.awaited}
	case object == nil:
		delete(x.wanted, o) // the watch will say so
	default:
		x.add(o.key(), o.Key().Namespace, object)
	}
	x.changed.Send() // also because the last one that was awaited may not exist
	return 0
}

// nextWanted returns the oldest object that has to be read again now, or how long to wait for one.
func (x *Objects) nextWanted(now time.Time) (next *Object, wait time.Duration) {
	wait = Idle
	for o, w := range x.wanted {
		switch {
		case w.due.After(now):
			wait = min(wait, w.due.Sub(now))
		case next == nil || o.compareAge(next) < 0:
			next = o
		}
	}
	return next, wait
}

// await waits for a signal, a time or the end of ctx.
func await(ctx context.Context, signal <-chan struct{}, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-signal:
	case <-time.After(wait):
	}
}
