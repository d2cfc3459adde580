package server

import (
	"context"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

const (
	// quietTime is how long a server must get no queries after lameduck before it
	// stops.
	quietTime = time.Second
	// maxQuietWait bounds the wait for that time: with the 5 s of lameduck in the
	// manifests, a stop ends before Kubernetes kills the process after 30 s.
	maxQuietWait = 10 * time.Second
)

// waitUntilQuiet blocks until no client sends queries any more, for as long as lameduck
// at most: a client that learns late that the server stops loses no query.
func (p *Plan) waitUntilQuiet(ctx context.Context) {
	wait := time.Duration(0)
	for _, l := range Find[lameduck](p) {
		wait = max(wait, l.Lameduck())
	}

	end := time.Now().Add(min(wait, maxQuietWait))
	for ctx.Err() == nil && time.Since(p.lastQuery()) < quietTime {
		if time.Now().After(end) {
			if wait > 0 {
				p.opts.Log.Warn("Stopping while clients send queries")
			}
			return
		}
		clock.Sleep(ctx, 50*time.Millisecond)
	}
}

// lastQuery returns the time of the last query.
func (p *Plan) lastQuery() (last time.Time) {
	for _, l := range p.sockets() {
		if t := l.LastQuery(); t.After(last) {
			last = t
		}
	}
	return last
}
