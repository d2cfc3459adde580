// Package linewriter writes lines to an output whose reader may be slow or stopped, such as
// the standard output of a container.
package linewriter

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/follow"
)

const (
	// MaxPending is the largest number of bytes that may wait: two seconds of a query log at
	// 5,000 queries a second.
	MaxPending = 1 << 20
	// FlushTimeout bounds how long Stop waits for the reader of the output: the kubelet kills
	// the process if a shutdown takes too long.
	FlushTimeout = 2 * time.Second
)

// A Writer writes to an output in a goroutine of its own. Lines wait in memory meanwhile, and
// those that exceed MaxPending are dropped, so that Write never blocks: a query would be delayed,
// a watch could miss a change, and a signal handler could not run.
type Writer struct {
	out     io.Writer
	dropped func(lines int)
	notice  string
	wake    follow.Signal // there is something to write
	done    chan struct{} // closed when the goroutine ends

	mu       sync.Mutex
	pending  []byte
	missing  int // lines that were dropped since the last notice
	stopping bool
}

// New returns a Writer, which must be stopped. dropped is called when lines are dropped; nil means
// that nothing is called. notice is the format of a line with their number, which is written once
// there is room; if it is empty, there is none.
func New(out io.Writer, dropped func(lines int), notice string) *Writer {
	w := &Writer{out: out, dropped: dropped, notice: notice, wake: follow.NewSignal(), done: make(chan struct{})}
	go w.run()
	return w
}

// Write queues whole lines. It never fails, and does not retain text.
func (w *Writer) Write(text []byte) (int, error) {
	w.mu.Lock()
	fits := len(w.pending)+len(text) <= MaxPending
	count := 0
	if fits {
		w.pending = append(w.pending, text...)
	} else {
		count = bytes.Count(text, []byte("\n"))
		w.missing += count
	}
	w.mu.Unlock()

	if !fits && w.dropped != nil {
		w.dropped(count)
	}
	w.wake.Send()
	return len(text), nil
}

// run writes until Stop. It writes from one buffer while lines are queued in the other.
func (w *Writer) run() {
	defer close(w.done)
	var spare []byte
	for range w.wake {
		w.mu.Lock()
		full, missing, stopping := w.pending, w.missing, w.stopping
		w.pending, w.missing = spare[:0], 0
		w.mu.Unlock()

		if missing > 0 && w.notice != "" {
			full = fmt.Appendf(full, w.notice+"\n", missing)
		}
		if len(full) > 0 {
			_, _ = w.out.Write(full) // there is no other place to report an error
		}
		if spare = full; stopping {
			return
		}
	}
}

// Stop writes the pending lines. Lines that are written later are lost.
func (w *Writer) Stop() {
	w.mu.Lock()
	w.stopping = true
	w.mu.Unlock()
	w.wake.Send()
	select {
	case <-w.done:
	case <-time.After(FlushTimeout):
	}
}
