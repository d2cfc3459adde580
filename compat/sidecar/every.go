package sidecar

import (
	"context"
	"math/rand/v2"
	"time"
)

// spread is a first delay: sidecars that start together do not ask together.
func spread(interval time.Duration) time.Duration { return rand.N(interval) }

// every calls do after a first delay and then once per interval, until ctx ends. do
// gets a context that ends with its interval, and returns when that does.
func every(ctx context.Context, first, interval time.Duration, do func(context.Context)) {
	delay := time.NewTimer(first)
	defer delay.Stop()
	select {
	case <-ctx.Done():
		return
	case <-delay.C:
	}
	turns := time.NewTicker(interval)
	defer turns.Stop()
	for ctx.Err() == nil {
		turn, cancel := context.WithTimeout(ctx, interval)
		do(turn)
		cancel()
		select {
		case <-ctx.Done():
		case <-turns.C:
		}
	}
}
