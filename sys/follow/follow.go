// Package follow has the parts of code that follows something, such as a ConfigMap, and keeps
// its last valid state: the Task that follows it, the Value that the Task sets, and the Signal
// to the code that uses the Value. An Event is for what happens once.
package follow

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Task is any number of goroutines that run until Stop. Its zero value has none.
type Task struct {
	begin   sync.Once
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Go calls run in a goroutine. Run must return when its context is done.
func Go(run func(context.Context)) *Task {
	t := new(Task)
	t.Go(run)
	return t
}

// Context returns the context of the task's goroutines.
func (t *Task) Context() context.Context {
	t.begin.Do(func() { t.ctx, t.cancel = context.WithCancel(context.Background()) })
	return t.ctx
}

// Go calls run in a further goroutine of the task. It must not be called after Stop.
func (t *Task) Go(run func(context.Context)) {
	ctx := t.Context()
	t.running.Go(func() { run(ctx) })
}

// Stop ends the task and waits until it has ended.
func (t *Task) Stop() {
	t.Cancel()
	t.Wait()
}

// Cancel ends the context, and Wait waits until all goroutines have ended: Stop in two steps.
func (t *Task) Cancel() {
	t.Context()
	t.cancel()
}

func (t *Task) Wait() { t.running.Wait() }

// A Signal receives one value for all changes since the last receive.
type Signal chan struct{}

// NewSignal returns a Signal.
func NewSignal() Signal { return make(Signal, 1) }

// Send signals a change. It never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // a change is pending already
	}
}

// An Event is closed when something happens, once.
type Event chan struct{}

// NewEvent returns an Event.
func NewEvent() Event { return make(Event) }

// Happened reports whether the event is closed.
func (e Event) Happened() bool {
	select {
	case <-e:
		return true
	default:
		return false
	}
}

// A Value is the last valid state of what is followed. It is safe for concurrent use.
type Value[T any] struct {
	mu    sync.Mutex
	value T
	known Event       // of the first Set
	late  atomic.Bool // First has waited in vain
}

// NewValue returns a Value that is initial until the first Set.
func NewValue[T any](initial T) *Value[T] {
	return &Value[T]{value: initial, known: NewEvent()}
}

// Get returns the value.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value
}

// Set changes the value.
func (v *Value[T]) Set(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value = value
	if !v.known.Happened() {
		close(v.known)
	}
}

// First waits up to limit for the first Set, and returns the value. If it has waited in vain
// it calls late, and later calls do not wait.
func (v *Value[T]) First(limit time.Duration, late func()) T {
	if v.late.Load() {
		limit = 0
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()

	select {
	case <-v.known:
	case <-timeout.C:
		if !v.late.Swap(true) {
			late()
		}
	}
	return v.Get()
}
