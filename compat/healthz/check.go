package healthz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
)

// A check is a command, and what became of it when it was last run.
type check struct {
	url, text string
	run       command
	latency   time.Duration
	log       *slog.Logger
	last      atomic.Pointer[result] // nil before the first run has ended
}

// A result is that of one run.
type result struct {
	ended  time.Time
	output []byte
	err    error // nil if it succeeded
}

// every runs the command at once and then each period, until ctx ends. A run that
// takes longer than that delays the next.
func (c *check) every(ctx context.Context, period, timeout time.Duration) {
	turns := time.NewTicker(period)
	defer turns.Stop()
	for ctx.Err() == nil {
		c.once(ctx, timeout)
		select {
		case <-ctx.Done():
		case <-turns.C:
		}
	}
}

// once runs the command and notes the result. A run that the end of ctx breaks off
// has none.
func (c *check) once(ctx context.Context, timeout time.Duration) {
	turn, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	output, err := c.run(turn)
	if ctx.Err() != nil {
		return
	}
	if err != nil && turn.Err() != nil {
		err = fmt.Errorf("it did not end within %v", timeout)
	}
	old := c.last.Swap(&result{time.Now(), output, err})
	switch {
	case err != nil && (old == nil || old.err == nil):
		c.log.Warn("command fails", "url", c.url, "cmd", c.text, "err", err, "output", firstWords(output))
	case err == nil && (old == nil || old.err != nil):
		c.log.Info("command succeeds", "url", c.url, "cmd", c.text)
	}
}

// health is what a probe is told: the error is nil if all is well. output is of the
// last run.
func (c *check) health(now time.Time) (output []byte, err error) {
	last := c.last.Load()
	if last == nil {
		return nil, errors.New("the command has not run yet")
	}
	if age := now.Sub(last.ended); age > c.latency {
		err = fmt.Errorf("the last result is of %v ago", age.Round(time.Millisecond))
		if last.err != nil {
			err = fmt.Errorf("%w: %w", err, last.err)
		}
		return last.output, err
	}
	return last.output, last.err
}

// firstWords is as much of an output as a line of the log needs.
func firstWords(output []byte) string {
	const enough = 200
	return strings.TrimSpace(strings.ToValidUTF8(string(output[:min(len(output), enough)]), "?"))
}
