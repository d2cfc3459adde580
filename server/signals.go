package server

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// Signals is the signals that the process has received. A main function catches
// them first of all, so that none ends the process while it starts.
type Signals struct {
	// Context ends at the first SIGTERM, SIGINT or SIGQUIT.
	Context context.Context

	received chan os.Signal
	reload   chan os.Signal // SIGHUP, SIGUSR1
	quit     chan struct{}  // closed by SIGQUIT
	pidfile  atomic.Pointer[string]
}

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

// Release restores the default effect of the signals.
func (s *Signals) Release() {
	signal.Stop(s.received)
	signal.Stop(s.reload)
	close(s.received)
}

func (s *Signals) wait(cancel context.CancelFunc) {
	received, ok := <-s.received
	if !ok {
		return
	}
	if received == syscall.SIGQUIT {
		close(s.quit)
	}
	cancel()
	if received, ok = <-s.received; !ok {
		return
	}
	if name := s.pidfile.Load(); name != nil {
		_ = os.Remove(*name) // the process ends either way
	}
	signal.Reset(received)
	raise(received)
}
