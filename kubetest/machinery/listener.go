package machinery

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

// A listener is a TCP listener that can stop as if its process had crashed: with
// all its connections, and without closing any of them in order.
type listener struct {
	net.Listener
	mu    sync.Mutex
	dead  bool
	conns map[*conn]struct{}
}

// A conn is a connection that its listener can close.
type conn struct {
	net.Conn
	listener *listener
}

// listen listens on addr. Shortly after the port was closed, another connection may
// use it as its local port; listen retries until it is free.
func listen(ctx context.Context, addr string) (*listener, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp4", addr)
		if err == nil {
			return &listener{Listener: ln, conns: map[*conn]struct{}{}}, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
		if !clock.Sleep(ctx, 10*time.Millisecond) {
			return nil, err
		}
	}
}

// Accept returns the next connection. A dead listener closes connections at once.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if own := l.keep(c); own != nil {
			return own, nil
		}
		c.Close()
	}
}

// keep registers a connection. It returns nil if the listener is dead.
func (l *listener) keep(c net.Conn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return nil
	}
	own := &conn{Conn: c, listener: l}
	l.conns[own] = struct{}{}
	return own
}

// Close closes the connection and removes it from the listener.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// die cuts all connections, present and future. The socket listens until Close,
// since a generic API server panics if its listener is closed before its context
// ends.
func (l *listener) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for c := range l.conns {
		c.Conn.Close()
	}
	clear(l.conns)
}

// Close cuts all connections and closes the socket.
func (l *listener) Close() error {
	l.die()
	return l.Listener.Close()
}
