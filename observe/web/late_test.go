package web

import (
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An address in use is opened once it is free, and a listener that is closed before opens none.
func TestLateListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Bool
		opened := 0
		conn, _ := net.Pipe()
		open := func() (net.Listener, error) {
			if !free.Load() {
				return nil, errors.New("address in use")
			}
			opened++
			return oneConn{conn}, nil
		}
		l := newLateListener("localhost:8053", open, slog.New(slog.DiscardHandler))
		got := make(chan net.Conn)
		go func() {
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
			}
			got <- c
		}()

		time.Sleep(time.Hour)
		synctest.Wait()
		if l.opened() != nil || l.Addr().String() != "localhost:8053" {
			t.Errorf("in use: got the listener %v at %v, want none", l.opened(), l.Addr())
		}
		free.Store(true)
		if c := <-got; c != conn || opened != 1 {
			t.Errorf("free: got the connection %v after %d openings, want one", c, opened)
		}

		free.Store(false)
		l = newLateListener("localhost:8053", open, slog.New(slog.DiscardHandler))
		ended := make(chan error)
		go func() {
			_, err := l.Accept()
			ended <- err
		}()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: got error %v, want %v", err, net.ErrClosed)
		}
		free.Store(true)
		if l.tryOpen(); l.opened() != nil {
			t.Error("closed: got an open listener, want none")
		}
	})
}

// A oneConn is a listener with one connection.
type oneConn struct{ net.Conn }

func (l oneConn) Accept() (net.Conn, error) { return l.Conn, nil }
func (l oneConn) Addr() net.Addr            { return new(net.TCPAddr) }
