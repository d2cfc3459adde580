package cmd

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// maxPending is the maximum size of the buffer, in bytes.
	maxPending = 1 << 20
	// flushTimeout is how long close waits for the reader of the output.
	flushTimeout = 2 * time.Second
)

// A commandOutput is the standard output of a command. It keeps the first error, since a
// command whose output is lost, on a full disk for example, has failed.
type commandOutput struct {
	out io.Writer
	err error
}

func (o *commandOutput) Write(text []byte) (int, error) {
	n, err := o.out.Write(text)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// log returns the standard output of a server: a server whose log is lost has not failed.
func (p *program) log() io.Writer {
	if o, ok := p.out.(*commandOutput); ok {
		return o.out
	}
	return p.out
}

// An output buffers standard output for a server. Write never blocks, because a
// watch that blocks on logging could miss a change, and a signal handler could
// not run. A goroutine writes the buffer. When the buffer is full, output drops
// lines and, once there is room, writes how many.
type output struct {
	out   io.Writer
	wake  chan struct{} // capacity 1; has a value if there is something to write
	ended chan struct{} // closed when the goroutine has returned

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
			text = fmt.Appendf(text, "[WARNING] Dropped lines: standard output was not read in time count=%d\n", o.dropped)
		}
		o.pending, o.dropped = nil, 0
		o.mu.Unlock()
		if len(text) > 0 {
			_, _ = o.out.Write(text) // there is no other place to report an error
		}
		if closed {
			return
		}
	}
}

// close writes the buffered text. Write must not be called after it.
func (o *output) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.poke()
	select {
	case <-o.ended:
	case <-time.After(flushTimeout):
	}
}
