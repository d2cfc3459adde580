package transport

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
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
	clients map[netip.Addr][]*limitedConn // by clientKey, the oldest connection first
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
		peer := addrPort(tcp.RemoteAddr()).Addr()
		policy := l.proxies.Load().policy(peer)
		c := &limitedConn{TCPConn: tcp, l: l}
		if policy == ProxySkip { // otherwise the client is not known yet
			c.client = clientKey(peer)
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
	if most := l.most(); most > 0 && l.open >= most {
		if refused = l.displaced(c.client); refused == nil {
			l.counts.overTotal.Add(1)
			return c
		}
		l.counts.overClient.Add(1)
		l.remove(refused)
	}
	l.open++
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
	} else {
		l.clients[c.client] = conns
	}
}

// A limitedConn is a connection of a LimitedListener.
type limitedConn struct {
	*net.TCPConn
	l      *LimitedListener
	client netip.Addr // see clientKey; not valid if a proxy may send it
}

func (c *limitedConn) Close() error {
	c.l.mu.Lock()
	c.l.remove(c)
	c.l.mu.Unlock()
	return c.TCPConn.Close()
}
