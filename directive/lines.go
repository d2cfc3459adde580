package directive

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
)

// maxPending is how many bytes of lines may wait for a slow reader of standard
// output: two seconds of a query log at 5,000 queries a second.
const maxPending = 1 << 20

// flushPatience is how long Stop waits for such a reader: kubelet's own
// patience with us ends, too.
const flushPatience = 2 * time.Second

// A lines is where errors and log write: standard output, line by line as they
// gather in memory, by one goroutine, so that no query waits for whoever reads
// it. What does not fit any more is dropped and counted. All blocks share one,
// and it outlives reloads.
type lines struct {
	out     io.Writer
	dropped *metrics.Counter
	wake    chan struct{} // has room for one: there is something to write
	ended   chan struct{} // closed when the goroutine has ended

	mu       sync.Mutex
	pending  []byte
	stopping bool
}

type linesKey struct{}

// startLines gives the process's lines to a plan that starts.
func startLines(s *config.Start, b *config.Block) (*lines, error) {
	return config.Keep(s, linesKey{}, func() (*lines, error) { return newLines(os.Stdout, b.Metrics), nil })
}

func newLines(out io.Writer, r *metrics.Registry) *lines {
	l := &lines{
		out:     out,
		dropped: r.Counter("seamark_log_dropped_lines_total", "Lines of the query and error logs that were dropped because standard output was not read in time."),
		wake:    make(chan struct{}, 1),
		ended:   make(chan struct{}),
	}
	go l.run()
	return l
}

// write takes one line with its newline; it never blocks and keeps nothing of
// it.
func (l *lines) write(line []byte) {
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
	l.poke()
}

func (l *lines) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *lines) run() {
	defer close(l.ended)
	var spare []byte
	for range l.wake {
		l.mu.Lock()
		full, stopping := l.pending, l.stopping
		l.pending = spare[:0]
		l.mu.Unlock()
		if len(full) > 0 {
			_, _ = l.out.Write(full) // there is nobody left to tell
		}
		spare = full
		if stopping {
			return
		}
	}
}

// Stop writes what is pending. Lines that come later are lost.
func (l *lines) Stop() {
	l.mu.Lock()
	l.stopping = true
	l.mu.Unlock()
	l.poke()
	select {
	case <-l.ended:
	case <-time.After(flushPatience):
	}
}
