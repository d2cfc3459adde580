package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An address in use is opened once it is free, and a listener that is stopped before opens none.
func TestLateListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Bool
		opened := 0
		late := func() *listener {
			l := &listener{addr: "localhost:8053", log: slog.New(slog.DiscardHandler), server: new(http.Server)}
			l.ctx, l.cancel = context.WithCancel(t.Context())
			l.open = func() (net.Listener, error) {
				if !free.Load() {
					return nil, errors.New("address in use")
				}
				opened++
				return new(net.TCPListener), nil
			}
			return l
		}

		l := late()
		got := make(chan net.Listener)
		go func() { got <- l.await() }()
		time.Sleep(time.Hour)
		synctest.Wait()
		site := Site{listener: l}
		if _, socket, err := l.Socket(); l.opened() != nil || socket != nil || err != nil || site.Addr() != "localhost:8053" {
			t.Errorf("in use: got the listener %v, socket %v, error %v, address %s, want none", l.opened(), socket, err, site.Addr())
		}
		free.Store(true)
		if socket := <-got; socket == nil || socket != l.opened() || opened != 1 {
			t.Errorf("free: got the socket %v after %d openings, want one", socket, opened)
		}

		free.Store(false)
		l = late()
		go func() { got <- l.await() }()
		synctest.Wait()
		l.Stop()
		if socket := <-got; socket != nil {
			t.Errorf("stopped: got the socket %v, want none", socket)
		}
		free.Store(true)
		if l.tryOpen(); l.opened() != nil {
			t.Error("stopped: got an open listener, want none")
		}
	})
}
