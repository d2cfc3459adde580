package sidecar

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

// randomDelay returns a delay below interval, so that sidecars that start together
// do not probe together.
func randomDelay(interval time.Duration) time.Duration { return rand.N(interval) }

// every calls do after delay and then once per interval until ctx ends. The context
// of each call ends after one interval; do returns when it ends.
func every(ctx context.Context, delay, interval time.Duration, do func(context.Context)) {
	clock.Sleep(ctx, delay)
	for range clock.Every(ctx, interval) {
		callCtx, cancel := context.WithTimeout(ctx, interval)
		do(callCtx)
		cancel()
	}
}
