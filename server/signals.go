package server

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// Signals receives the signals of the process. A main function calls CatchSignals
// first, so that a signal during the start has the same effect as later.
type Signals struct {
	// Context ends at the first SIGTERM, SIGINT or SIGQUIT.
	Context context.Context

	received chan os.Signal
	reload   chan os.Signal // SIGHUP, SIGUSR1
	quit     chan struct{}  // closed by SIGQUIT
	pidfile  atomic.Pointer[pidFile]
	starting atomic.Bool // the Corefile is being read
}

// startWait is how long a start may take after a signal: it may read a Corefile from a pipe that
// has no end.
const startWait = 3 * time.Second

// Starting announces a server that reads its Corefile: a signal ends the process then even if
// nothing notices that Context has ended.
func (s *Signals) Starting() { s.starting.Store(true) }

// CatchSignals replaces the default effect of signals until Release. The first
// SIGTERM or SIGINT ends the context, and the second ends the process at once.
// SIGQUIT ends the context and skips lameduck; with GOTRACEBACK it has its default
// effect, a dump of all goroutines.
func CatchSignals(ctx context.Context) *Signals {
	s := &Signals{received: make(chan os.Signal, 2), reload: make(chan os.Signal, 1), quit: make(chan struct{})}
	signal.Notify(s.received, syscall.SIGTERM, os.Interrupt)
	if os.Getenv("GOTRACEBACK") == "" {
		signal.Notify(s.received, syscall.SIGQUIT)
	}
	signal.Notify(s.reload, reloadSignals()...)
	var cancel context.CancelFunc
	s.Context, cancel = context.WithCancel(ctx)
	go s.wait(cancel)
	return s
}

// Release restores the default effect of the signals. Context does not end at a
// signal after that.
func (s *Signals) Release() {
	signal.Stop(s.received)
	signal.Stop(s.reload)
	close(s.received)
}

// ReleaseReload restores the default effect of the signals that reload a Corefile.
func (s *Signals) ReleaseReload() { signal.Stop(s.reload) }

func (s *Signals) wait(cancel context.CancelFunc) {
	received, ok := <-s.received
	if !ok {
		return
	}
	if received == syscall.SIGQUIT {
		close(s.quit)
	}
	cancel()

	late := time.After(startWait)
	for waiting := true; waiting; {
		select {
		case received, ok = <-s.received:
			if !ok {
				return
			}
			waiting = false
		case <-late:
			waiting = !s.starting.Load()
		}
	}
	if file := s.pidfile.Load(); file != nil {
		_ = file.remove() // the process ends in any case
	}
	if received == syscall.SIGQUIT {
		received = syscall.SIGTERM // its default effect is a dump
	}
	signal.Reset(received)
	raise(received)
}
