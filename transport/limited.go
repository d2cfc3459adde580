package transport

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A LimitedListener accepts TCP connections up to a limit. At the limit a new connection
// replaces one of the client that has most, if that has more than the new one's client will
// have.
type LimitedListener struct {
	*net.TCPListener
	Address netip.AddrPort // with the port that was opened
	most    func() int
	counts  counters
	proxies proxySource
	log     *slog.Logger
	timeout time.Duration // for a PROXY header

	mu      sync.Mutex
	open    int
	clients map[netip.Addr][]*limitedConn // by ClientKey, the oldest connection first
	turns   map[netip.Addr]turns          // of clients
	refused map[netip.Addr]time.Time      // clients that may not connect before that time
}

// maxRefused bounds the clients that may not connect.
const maxRefused = 1000

// Refuse closes new connections of a client, as ClientKey returns it, until a time.
func (l *LimitedListener) Refuse(client netip.Addr, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.refused) >= maxRefused {
		clear(l.refused)
	}
	l.refused[client] = until
}

// refuses reports whether a client may not connect.
func (l *LimitedListener) refuses(client netip.Addr) bool {
	until, ok := l.refused[client]
	if ok && time.Now().After(until) {
		delete(l.refused, client)
		return false
	}
	return ok
}

// SetProxies sets the proxies of future connections. nil is none.
func (l *LimitedListener) SetProxies(o *ProxyOptions) { l.proxies.set(o) }

// Accept closes connections over the limit.
func (l *LimitedListener) Accept() (net.Conn, error) {
	for {
		tcp, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}

		peer := AddrPort(tcp.RemoteAddr()).Addr()
		policy := l.proxies.Load().policy(peer)
		c := &limitedConn{TCPConn: tcp, l: l}
		if policy == ProxySkip { // otherwise the client is not known yet
			c.client = ClientKey(peer)
		}

		refused := l.add(c)
		if refused != nil {
			_ = refused.SetLinger(0)
			_ = refused.TCPConn.Close()
		}
		switch {
		case refused == c:
		case policy != ProxySkip:
			return &proxiedConn{Conn: c, l: l, policy: policy}, nil
		default:
			return c, nil
		}
	}
}

// add adds c. At the limit it removes and returns the last connection of the client that has
// most, or c.
func (l *LimitedListener) add(c *limitedConn) (refused *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses(c.client) {
		l.counts.overClient.Add(1)
		return c
	}
	if most := l.most(); most > 0 && l.open >= most {
		if refused = l.displaced(c.client); refused == nil {
			l.counts.overTotal.Add(1)
			return c
		}
		l.counts.overClient.Add(1)
		l.remove(refused)
	}

	l.open++
	if c.turns = l.turns[c.client]; c.turns == nil {
		c.turns = newTurns()
		l.turns[c.client] = c.turns
	}
	l.clients[c.client] = append(l.clients[c.client], c)
	return refused
}

// displaced returns the connection that one of a client may replace, or nil. Connections of
// unknown clients are not replaced, and replace none.
func (l *LimitedListener) displaced(by netip.Addr) (last *limitedConn) {
	if !by.IsValid() {
		return nil
	}
	most := len(l.clients[by]) + 1
	for client, conns := range l.clients {
		if client.IsValid() && len(conns) > most {
			last, most = conns[len(conns)-1], len(conns)
		}
	}
	return last
}

// remove removes a connection, unless that has happened.
func (l *LimitedListener) remove(c *limitedConn) {
	conns := l.clients[c.client]
	i := slices.Index(conns, c)
	if i < 0 {
		return
	}
	l.open--
	if conns = slices.Delete(conns, i, i+1); len(conns) == 0 {
		delete(l.clients, c.client)
		delete(l.turns, c.client)
	} else {
		l.clients[c.client] = conns
	}
}

// A limitedConn is a connection of a LimitedListener.
type limitedConn struct {
	*net.TCPConn
	l      *LimitedListener
	client netip.Addr // see ClientKey; not valid if a proxy may send it
	turns  turns      // of the client

	takesTurns atomic.Bool
	hasTurn    atomic.Bool
	closed     atomic.Bool
}

// TakeTurns makes a connection of a LimitedListener take turns with the client's others: what
// it has read is processed until it reads again, and only as many connections of a client as
// there are processors do that at the same time.
func TakeTurns(c net.Conn) {
	if proxied, ok := c.(*proxiedConn); ok {
		c = proxied.Conn
	}
	if limited, ok := c.(*limitedConn); ok {
		limited.takesTurns.Store(true)
	}
}

func (c *limitedConn) Read(p []byte) (int, error) {
	c.endTurn()
	n, err := c.TCPConn.Read(p)
	if err == nil && c.takesTurns.Load() {
		c.takeTurn()
	}
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

func (c *limitedConn) Close() error {
	c.closed.Store(true)
	c.endTurn()
	c.l.mu.Lock()
	c.l.remove(c)
	c.l.mu.Unlock()
	return c.TCPConn.Close()
}
