package chaintest

import (
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/metrics"
)

// QuietLog returns a logger without output.
func QuietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// A Log collects log lines. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Logger returns a logger that writes to l.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns the number of lines that contain words.
func (l *Log) Count(words string) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, words) {
			n++
		}
	}
	return n
}

// Take returns the messages and attributes of a level, such as WARN, and empties the log.
func (l *Log) Take(level string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.text.String()) {
		if _, rest, ok := strings.Cut(line, "level="+level+" msg="); ok {
			found = append(found, strings.TrimSpace(rest))
		}
	}
	l.text.Reset()
	return strings.Join(found, "\n")
}

// Metric returns the value of a series, given with its labels; "" if there is none.
func Metric(r *metrics.Registry, series string) string {
	var text strings.Builder
	_ = r.WriteText(&text) // a builder cannot fail
	for line := range strings.Lines(text.String()) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Eventually waits until a condition is met.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, patience, func() string {
		if ok() {
			return ""
		}
		return what
	})
}

// Within waits until differs returns "", for limit at most. Until then differs returns what is missing. The
// failure has the stacks of goroutines, too.
func Within(t testing.TB, limit time.Duration, differs func() string) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		why := differs()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			buf := make([]byte, 64<<10)
			t.Fatalf("condition is not met after %v: %s\n%s", limit, why, buf[:runtime.Stack(buf, true)])
		}
	}
}
