package cmd

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// maxPending is how many bytes may wait for a slow reader.
	maxPending = 1 << 20
	// flushPatience is how long close waits for one.
	flushPatience = 2 * time.Second
)

// An output is standard output for what runs as long as the process: one
// goroutine writes, so that whoever has something to say never waits for
// whoever reads it. A watch that waits to log a change would miss the next one,
// and a signal would go unheard. What does not fit is dropped, which is said
// when there is room again.
type output struct {
	out   io.Writer
	wake  chan struct{} // has room for one: there is something to write
	ended chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	pending []byte
	dropped int
	closed  bool
}

func newOutput(out io.Writer) *output {
	o := &output{out: out, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go o.run()
	return o
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	if len(o.pending)+len(text) <= maxPending {
		o.pending = append(o.pending, text...)
	} else {
		o.dropped += bytes.Count(text, []byte("\n"))
	}
	o.mu.Unlock()
	o.poke()
	return len(text), nil
}

func (o *output) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *output) run() {
	defer close(o.ended)
	for range o.wake {
		o.mu.Lock()
		text, closed := o.pending, o.closed
		if o.dropped > 0 {
			text = fmt.Appendf(text, "[WARNING] %d lines were dropped: standard output was not read in time\n", o.dropped)
		}
		o.pending, o.dropped = nil, 0
		o.mu.Unlock()
		if len(text) > 0 {
			_, _ = o.out.Write(text) // there is nobody left to tell
		}
		if closed {
			return
		}
	}
}

// close writes what is pending. Nothing may be written afterwards.
func (o *output) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.poke()
	select {
	case <-o.ended:
	case <-time.After(flushPatience):
	}
}
