package transport

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

// A LimitedListener accepts connections for a server of another protocol than DNS, up to the
// limits of its table.
type LimitedListener struct {
	net.Listener
	Address netip.AddrPort // with the port that was opened; only of ListenTCP
	table   *ConnTable
	owned   bool // no other listener has the table
	proxies proxySource
	log     *slog.Logger
	failed  acceptErrors
	timeout time.Duration // for a PROXY header
}

// LimitListener returns a listener whose connections have the limits of a table, together with
// those of other listeners.
func LimitListener(l net.Listener, t *ConnTable) *LimitedListener {
	log := slog.New(slog.DiscardHandler)
	return &LimitedListener{Listener: l, table: t, log: log, failed: acceptErrors{log: log, address: l.Addr()}}
}

// Refuse closes new connections of a client, as ClientKey returns it, until a time.
func (l *LimitedListener) Refuse(client netip.Addr, until time.Time) { l.table.refuse(client, until) }

// SetProxies sets the proxies of future connections. nil is none.
func (l *LimitedListener) SetProxies(o *ProxyOptions) { l.proxies.set(o) }

// File returns a copy of the TCP socket.
func (l *LimitedListener) File() (*os.File, error) {
	return l.Listener.(interface{ File() (*os.File, error) }).File()
}

// Close closes the socket. Connections stay open.
func (l *LimitedListener) Close() error {
	if l.owned {
		l.table.Stop()
	}
	return l.Listener.Close()
}

// Accept closes connections over the limit. It returns an error only after Close: its callers take others for the
// end of the listener.
func (l *LimitedListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil {
			time.Sleep(l.failed.failed(err))
			continue
		}
		l.failed.succeeded()

		peer := AddrPort(accepted.RemoteAddr()).Addr()
		policy := l.proxies.Load().policy(peer)
		c := &limitedConn{Conn: accepted, l: l}
		c.shrink(l.table.o.Buffer)
		c.touch()
		if policy == ProxySkip { // otherwise the client is not known yet
			c.client = ClientKey(peer)
		}

		switch {
		case !l.table.add(c):
			c.abort()
		case policy != ProxySkip:
			return &proxiedConn{Conn: c, l: l, policy: policy}, nil
		default:
			return c, nil
		}
	}
}

// A limitedConn is a connection of a LimitedListener.
type limitedConn struct {
	net.Conn
	l      *LimitedListener
	client netip.Addr    // see ClientKey; not valid if a proxy may send it
	turns  turns         // of the client
	opened time.Duration // on the clock of package clock
	active atomic.Int64
	busy   atomic.Bool // a request is being answered
	asked  atomic.Bool // the client has sent a request, or the preface of HTTP/2

	takesTurns atomic.Bool
	hasTurn    atomic.Bool
	closed     atomic.Bool
	handshake  handshakeSlot
}

// limited returns the connection of a LimitedListener below c, or nil.
func limited(c net.Conn) *limitedConn {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	if proxied, ok := c.(*proxiedConn); ok {
		c = proxied.Conn
	}
	l, _ := c.(*limitedConn)
	return l
}

// TakeTurns makes a connection of a LimitedListener take turns with the client's others: what
// it has read is processed until it reads again, and only as many connections of a client as
// there are processors do that at the same time.
func TakeTurns(c net.Conn) {
	if l := limited(c); l != nil {
		l.takesTurns.Store(true)
	}
}

// SetBusy records whether a connection of a LimitedListener has requests that are not answered.
func SetBusy(c net.Conn, busy bool) {
	if l := limited(c); l != nil {
		l.busy.Store(busy)
		if busy {
			l.asked.Store(true)
		}
	}
}

// shrink makes the kernel's buffers smaller.
func (c *limitedConn) shrink(size int) {
	buffers, ok := c.Conn.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	})
	if ok && size > 0 {
		_ = buffers.SetReadBuffer(size)
		_ = buffers.SetWriteBuffer(size)
	}
}

func (c *limitedConn) touch() { c.active.Store(int64(clock.Now())) }

func (c *limitedConn) Read(p []byte) (int, error) {
	c.endTurn()
	c.handshake.release()
	n, err := c.Conn.Read(p)
	c.touch()
	if err == nil && c.takesTurns.Load() {
		c.takeTurn()
	}
	return n, err
}

func (c *limitedConn) Write(p []byte) (int, error) {
	c.handshake.release()
	n, err := c.Conn.Write(p)
	c.touch()
	return n, err
}

// takeTurn blocks until the connection has a turn. One that was closed meanwhile does not
// keep it: it may never read again.
func (c *limitedConn) takeTurn() {
	c.turns <- struct{}{}
	c.hasTurn.Store(true)
	if c.closed.Load() {
		c.endTurn()
	}
}

func (c *limitedConn) endTurn() {
	if c.hasTurn.Swap(false) {
		<-c.turns
	}
}

// handshakeSlot implements handshaker.
func (c *limitedConn) handshakeSlot() *handshakeSlot { return &c.handshake }

func (c *limitedConn) Close() error {
	c.closed.Store(true)
	c.endTurn()
	c.handshake.end()
	c.handshake.release()
	c.l.table.removeClosed(c)
	return c.Conn.Close()
}

// CloseWrite ends what the connection sends, for net/http.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// abort resets the connection, so that the kernel keeps no state of it (TIME_WAIT).
func (c *limitedConn) abort() {
	c.handshake.end()
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close()
}
