package directive

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
)

// maxPending is the largest number of bytes that may wait for standard output:
// two seconds of a query log at 5,000 queries a second.
const maxPending = 1 << 20

// flushTimeout bounds how long Stop waits for standard output: the kubelet
// kills the process if a shutdown takes too long.
const flushTimeout = 2 * time.Second

// A lineWriter writes the lines of errors and log to standard output. One
// goroutine writes; lines wait in memory meanwhile, so a blocked standard
// output delays no query. Lines that exceed maxPending are dropped and counted.
// All server blocks share one lineWriter, which survives reloads.
type lineWriter struct {
	out     io.Writer
	dropped *metrics.Counter
	wake    chan struct{} // capacity 1; signals that there are pending lines
	done    chan struct{} // closed when the goroutine ends

	mu       sync.Mutex
	pending  []byte
	stopping bool
}

type lineWriterKey struct{}

// standardOutput returns the process's lineWriter.
func standardOutput(s *config.Start, b *config.Block) (*lineWriter, error) {
	return config.Keep(s, lineWriterKey{}, func() (*lineWriter, error) {
		return newLineWriter(os.Stdout, b.Metrics), nil
	})
}

func newLineWriter(out io.Writer, r *metrics.Registry) *lineWriter {
	l := &lineWriter{
		out: out,
		dropped: r.Counter("seamark_log_dropped_lines_total",
			"Lines of the query and error logs that were dropped because standard output was blocked."),
		wake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	go l.run()
	return l
}

// write queues one line, which ends in a newline. It never blocks and does not
// retain line.
func (l *lineWriter) write(line []byte) {
	l.mu.Lock()
	fits := len(l.pending)+len(line) <= maxPending
	if fits {
		l.pending = append(l.pending, line...)
	}
	l.mu.Unlock()
	if !fits {
		l.dropped.Add(1)
		return
	}
	l.signal()
}

func (l *lineWriter) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *lineWriter) run() {
	defer close(l.done)
	var spare []byte
	for range l.wake {
		l.mu.Lock()
		full, stopping := l.pending, l.stopping
		l.pending = spare[:0]
		l.mu.Unlock()
		if len(full) > 0 {
			_, _ = l.out.Write(full) // there is no other place to report an error
		}
		spare = full
		if stopping {
			return
		}
	}
}

// Stop writes the pending lines. Lines that are written later are lost.
func (l *lineWriter) Stop() {
	l.mu.Lock()
	l.stopping = true
	l.mu.Unlock()
	l.signal()
	select {
	case <-l.done:
	case <-time.After(flushTimeout):
	}
}
