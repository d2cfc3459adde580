package web

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// lateRetry is the time between two attempts to open an address.
const lateRetry = 5 * time.Second

// A lateListener is a listener whose address cannot be opened yet. Accept opens it as soon as it
// can: an earlier process, as in a rolling restart on one node, may use it for a while.
type lateListener struct {
	addr lateAddr
	open func() (net.Listener, error)
	log  *slog.Logger
	done chan struct{}

	mu     sync.Mutex
	socket net.Listener // nil before it is open
	closed bool
}

func newLateListener(addr string, open func() (net.Listener, error), log *slog.Logger) *lateListener {
	return &lateListener{addr: lateAddr(addr), open: open, log: log, done: make(chan struct{})}
}

// Accept implements net.Listener. One goroutine calls it.
func (l *lateListener) Accept() (net.Conn, error) {
	for {
		if socket := l.opened(); socket != nil {
			return socket.Accept()
		}
		select {
		case <-l.done:
			return nil, net.ErrClosed
		case <-time.After(lateRetry):
			l.tryOpen()
		}
	}
}

func (l *lateListener) tryOpen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if socket, err := l.open(); err == nil {
		l.socket = socket
		l.log.Info("Pages are served", "address", string(l.addr))
	}
}

// opened returns the open listener, or nil.
func (l *lateListener) opened() net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket
}

// Close implements net.Listener.
func (l *lateListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	close(l.done)
	if l.socket != nil {
		return l.socket.Close()
	}
	return nil
}

// Addr implements net.Listener.
func (l *lateListener) Addr() net.Addr {
	if socket := l.opened(); socket != nil {
		return socket.Addr()
	}
	return l.addr
}

// A lateAddr is the text of an address that is not open.
type lateAddr string

func (lateAddr) Network() string  { return "tcp" }
func (a lateAddr) String() string { return string(a) }
