package server

import (
	"context"
	"os"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
)

// beatInterval is the time between two heartbeats.
const beatInterval = 250 * time.Millisecond

// A Supervisor is a process that keeps the sockets of a server when that ends, and starts
// another one.
type Supervisor interface {
	// Keep passes copies of all sockets for queries, in place of earlier ones.
	Keep([]*os.File) error
	// Beat is called every beatInterval while every reader of queries makes progress.
	Beat()
}

// keepSockets passes the sockets of the plan to the supervisor.
func (r *Run) keepSockets(p *Plan) {
	r.current.Store(p)
	if r.Supervisor == nil {
		return
	}

	var all []*os.File
	defer func() {
		for _, f := range all {
			_ = f.Close()
		}
	}()
	for _, l := range p.sockets() {
		files, err := l.Files()
		all = append(all, files...)
		if err != nil {
			r.Log.Warn("Socket is closed if the process ends", "address", l.Addr(), "error", err)
		}
	}
	if err := r.Supervisor.Keep(all); err != nil {
		r.Log.Warn("Sockets are closed if the process ends", "error", err)
	}
}

// beats sends heartbeats until the returned function is called.
func (r *Run) beats() (end func()) {
	if r.Supervisor == nil {
		return func() {}
	}

	return follow.Go(func(ctx context.Context) {
		for range clock.Together(ctx, beatInterval) {
			for _, l := range r.current.Load().listeners {
				l.Port().WaitReaders() // a reader that does not return holds its lock
			}
			r.Supervisor.Beat()
		}
	}).Stop
}
