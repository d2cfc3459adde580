package healthz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

// A check runs one command at an interval and keeps its last result.
type check struct {
	url     string
	program string // for the log and the page of all commands
	run     command
	latency time.Duration
	log     *slog.Logger
	last    atomic.Pointer[result] // nil before the end of the first run
}

// A result is the outcome of one run.
type result struct {
	ended  time.Time
	output []byte
	err    error // nil if the command succeeded
}

// repeat runs the command at once and then every period until ctx ends. A run that
// takes longer delays the next one.
func (c *check) repeat(ctx context.Context, period, timeout time.Duration) {
	for range clock.Every(ctx, period) {
		c.runOnce(ctx, timeout)
	}
}

// runOnce runs the command and stores the result. A run that ctx cancels has no
// result.
func (c *check) runOnce(ctx context.Context, timeout time.Duration) {
	runCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	output, err := c.run(runCtx)
	if ctx.Err() != nil {
		return
	}
	if err != nil && runCtx.Err() != nil {
		err = fmt.Errorf("the command did not end within %v", timeout)
	}
	old := c.last.Swap(&result{time.Now(), output, err})
	switch {
	case err != nil && (old == nil || old.err == nil):
		c.log.Warn("Command failed", "error", err, "output", truncated(output))
	case err == nil && (old == nil || old.err != nil):
		c.log.Info("Command succeeded")
	}
}

// health returns the output of the last run, and an error if that run failed or is
// too old.
func (c *check) health(now time.Time) (output []byte, err error) {
	last := c.last.Load()
	if last == nil {
		return nil, errors.New("the command has not run yet")
	}
	if age := now.Sub(last.ended); age > c.latency {
		err = fmt.Errorf("the last result is %v old", age.Round(time.Millisecond))
		if last.err != nil {
			err = fmt.Errorf("%w: %w", err, last.err)
		}
		return last.output, err
	}
	return last.output, last.err
}

// truncated returns the start of a command's output, for the log.
func truncated(output []byte) string {
	const limit = 200
	return strings.TrimSpace(strings.ToValidUTF8(string(output[:min(len(output), limit)]), "?"))
}
