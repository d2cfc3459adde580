package transport

import (
	"bytes"
	"container/list"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// A ProxyPolicy determines how PROXY headers of a peer are treated.
type ProxyPolicy string

const (
	ProxyUse    ProxyPolicy = "use"    // the header's client is the client
	ProxyIgnore ProxyPolicy = "ignore" // the header is removed
	ProxyReject ProxyPolicy = "reject" // connections and datagrams with a header are rejected
	ProxySkip   ProxyPolicy = "skip"   // headers are not looked for
)

// ProxyOptions are the peers of a listener that may name their clients in PROXY headers.
type ProxyOptions struct {
	Trusted     []netip.Prefix // peers whose headers are used
	Others      ProxyPolicy    // of all other peers
	SessionTime time.Duration  // how long the client in a datagram's header also applies to the peer's next datagrams
	Sessions    int            // the largest number of such peers
	KeepTLVs    bool           // for dns.Session.ProxyTLVs
}

func (o *ProxyOptions) equal(p *ProxyOptions) bool {
	return slices.Equal(o.Trusted, p.Trusted) && o.Others == p.Others &&
		o.SessionTime == p.SessionTime && o.Sessions == p.Sessions && o.KeepTLVs == p.KeepTLVs
}

// proxies are the peers of a listener that may name their clients in PROXY headers. A peer
// that may send headers need not send any. Nil proxies have the policy skip for all peers.
type proxies struct {
	o        ProxyOptions
	mu       sync.Mutex
	nextLog  time.Time                        // no message is logged before
	sessions map[netip.AddrPort]*list.Element // by peer
	byAge    list.List                        // of *proxySession, the most recently used one last
}

// A proxiedClient is what a proxy's header says of its client.
type proxiedClient struct {
	addr netip.AddrPort // not valid if the header has none
	tlvs string         // see dns.Session.ProxyTLVs
}

// A proxySession is the client of a peer's datagrams.
type proxySession struct {
	peer    netip.AddrPort
	client  proxiedClient
	expires time.Time
}

// client returns the client that a header names. It keeps no memory of the header's data.
func (p *proxies) client(h proxyHeader) proxiedClient {
	c := proxiedClient{addr: h.client}
	if p != nil && p.o.KeepTLVs {
		c.tlvs = keptTLVs(h.tlvs)
	}
	return c
}

// areUsed reports whether a peer may name its clients.
func (p *proxies) areUsed() bool { return p != nil && (p.o.Others == ProxyUse || len(p.o.Trusted) > 0) }

// policy returns the policy for a peer.
func (p *proxies) policy(peer netip.Addr) ProxyPolicy {
	if p == nil {
		return ProxySkip
	}
	for _, prefix := range p.o.Trusted {
		if prefix.Contains(peer.WithZone("")) {
			return ProxyUse
		}
	}
	return p.o.Others
}

var (
	errProxyRejected = errors.New("the peer may not send headers")
	errProxyVersion  = errors.New("version 1 over UDP, want version 2")
)

// rejected counts and logs a rejected header. It logs at most one in a minute.
func (p *proxies) rejected(l *slog.Logger, count *metrics.Counter, peer netip.AddrPort, err error) {
	count.Add(1)
	p.mu.Lock()
	now := time.Now()
	isDue := now.After(p.nextLog)
	if isDue {
		p.nextLog = now.Add(time.Minute)
	}
	p.mu.Unlock()
	if isDue {
		l.Warn("Rejected PROXY header", "client", peer, "error", err)
	}
}

// session returns the client of a peer that has named it in an earlier datagram.
func (p *proxies) session(peer netip.AddrPort) (client proxiedClient, ok bool) {
	if p.o.SessionTime == 0 {
		return client, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.sessions[peer]
	if at == nil {
		return client, false
	}

	s := at.Value.(*proxySession)
	now := time.Now()
	if now.After(s.expires) {
		p.removeSession(at)
		return client, false
	}
	s.expires = now.Add(p.o.SessionTime)
	p.byAge.MoveToBack(at)
	return s.client, true
}

// startSession makes client the client of a peer's next datagrams. At the limit it replaces
// the session that has not been used for longest.
func (p *proxies) startSession(peer netip.AddrPort, client proxiedClient) {
	if p.o.SessionTime == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.sessions[peer]; at != nil {
		p.removeSession(at)
	} else if len(p.sessions) >= p.o.Sessions {
		p.removeSession(p.byAge.Front())
	}
	p.sessions[peer] = p.byAge.PushBack(&proxySession{peer, client, time.Now().Add(p.o.SessionTime)})
}

func (p *proxies) removeSession(at *list.Element) {
	delete(p.sessions, at.Value.(*proxySession).peer)
	p.byAge.Remove(at)
}

// SetProxies sets the proxies of future connections, and of datagrams. nil is none.
func (l *Listener) SetProxies(o *ProxyOptions) { l.proxies.set(o) }

// A proxySource has the present proxies of a listener; nil if it never had any.
type proxySource struct{ atomic.Pointer[proxies] }

// set sets the proxies, and keeps the sessions of equal ones. A listener that has had
// proxies keeps some that skip all headers, since only then a reader resets the senders of
// its queries.
func (s *proxySource) set(o *ProxyOptions) {
	old := s.Load()
	switch {
	case o == nil && old == nil:
		return
	case o == nil:
		o = &ProxyOptions{Others: ProxySkip}
	}
	if old == nil || !old.o.equal(o) {
		s.Store(&proxies{o: *o, sessions: map[netip.AddrPort]*list.Element{}})
	}
}

// unwrap returns the packet in a datagram that may have a header, and the TLVs to keep, and sets
// q's client. The packet is nil if the header is rejected, or the datagram has nothing else.
func (r *reader) unwrap(p *proxies, q *dns.Query, datagram []byte) (packet []byte, tlvs string) {
	q.Sender = r.sender
	policy := p.policy(q.Peer.Addr())
	if policy == ProxySkip || len(datagram) == 0 {
		return datagram, ""
	}

	h, size, err := parseProxyHeader(datagram)
	switch {
	case err == nil && size == 0:
		if client, ok := p.session(q.Peer); ok && policy == ProxyUse {
			r.setClient(q, client.addr)
			return datagram, client.tlvs
		}
		return datagram, ""
	case err == nil && policy == ProxyReject:
		err = errProxyRejected
	case err == nil && h.version == 1:
		err = errProxyVersion
	}
	if err != nil {
		p.rejected(r.l.o.Log, r.l.counts.proxyUDP, q.Peer, err)
		return nil, ""
	}

	if policy == ProxyUse && h.client.IsValid() {
		client := p.client(h)
		p.startSession(q.Peer, client)
		r.setClient(q, client.addr)
		tlvs = client.tlvs
	}
	if size == len(datagram) {
		return nil, ""
	}
	return datagram[size:], tlvs
}

// setClient makes client the peer of q, whose reply goes to the proxy.
func (r *reader) setClient(q *dns.Query, client netip.AddrPort) {
	q.Sender = &proxySender{r.sender, q.Peer}
	q.Peer = client
}

// A proxySender sends the replies of parked queries to a proxy.
type proxySender struct {
	dns.Sender
	proxy netip.AddrPort
}

func (s *proxySender) Send(q *dns.Query) {
	client := q.Peer
	q.Peer = s.proxy
	s.Sender.Send(q)
	q.Peer = client
}

// readProxyHeader reads a header from a connection into buf, which has the first bytes of it
// already. It returns the header and the data that were read after it, or an error and all
// data that were read.
func readProxyHeader(from io.Reader, buf []byte, have int) (h proxyHeader, rest []byte, err error) {
	for {
		h, size, err := parseProxyHeader(buf[:have])
		if err == nil {
			return h, buf[size:have], nil
		}
		if err != errIncomplete {
			return h, buf[:have], err
		}

		n, err := from.Read(buf[have:])
		if have += n; n == 0 {
			if err == nil || err == io.EOF && have > 0 {
				err = io.ErrUnexpectedEOF
			}
			return h, buf[:have], err
		}
	}
}

// identify reads the header of a connection whose peer may be a proxy, and counts the
// connection for its client. It returns false if the connection is to be closed, or to be
// passed to another process.
func (c *conn) identify() bool {
	buf := c.l.inputs.Get().(*[inSize]byte)[:]
	below := c.sock
	withTLS, _ := c.sock.(*tlsSocket)
	if withTLS != nil {
		below = withTLS.socket
	}

	h, rest, err := c.awaitProxyHeader(below, buf)
	if err == nil && h.version != 0 && c.proxyPolicy == ProxyReject {
		err = errProxyRejected
	}
	if err != nil {
		if c.leaving {
			c.unread, rest = bytes.Clone(rest), nil
		}
		c.buf, c.in = buf, nil
		c.freeBuffer()
		if len(rest) > 0 || err == errProxyRejected {
			c.l.proxies.Load().rejected(c.l.o.Log, c.l.counts.proxyTCP, c.peer, err)
		}
		return false
	}

	peer := c.peer
	if c.proxyPolicy == ProxyUse && h.client.IsValid() {
		client := c.l.proxies.Load().client(h)
		peer, c.tlvs = client.addr, client.tlvs
	}

	// What follows the header is the beginning of a query, or of the TLS handshake.
	if withTLS != nil {
		withTLS.records.rest = bytes.Clone(rest)
		c.buf = buf
		c.freeBuffer()
	} else {
		c.buf, c.in, c.messageStart = buf, rest, time.Now()
	}
	return c.l.conns.identify(c, peer)
}

// awaitProxyHeader reads the header into buf until the idle timeout, the end of the listener,
// or the hand-over of its connections, for which it sets c.leaving.
func (c *conn) awaitProxyHeader(from io.Reader, buf []byte) (h proxyHeader, rest []byte, err error) {
	deadline := time.Now().Add(c.l.limits.Load().IdleTimeout)
	rest = buf[:copy(buf, c.in)]
	for {
		c.setHandshakeDeadline(deadline)
		h, rest, err = readProxyHeader(from, buf, len(rest))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return h, rest, err
		}

		// It may be wake that has shortened the deadline.
		if c.l.isStopping() {
			deadline = c.l.stopTime.Add(c.l.lastQuery)
		}
		if c.leaving = c.l.passing.Load(); c.leaving || !time.Now().Before(deadline) {
			return h, rest, err
		}
	}
}

// A proxiedConn is a connection for another protocol than DNS, whose peer may be a proxy.
// The header is read when the address or data are needed, not when the connection is
// accepted.
type proxiedConn struct {
	net.Conn
	l      *LimitedListener
	policy ProxyPolicy
	once   sync.Once
	client proxiedClient
	rest   []byte // read, but not returned by Read
	err    error
}

// identify reads the header. A connection without a valid one returns no data.
func (c *proxiedConn) identify() {
	c.client.addr = AddrPort(c.Conn.RemoteAddr())
	_ = c.SetReadDeadline(time.Now().Add(c.l.timeout))
	h, rest, err := readProxyHeader(c.Conn, make([]byte, inSize), 0)
	if err == nil && h.version != 0 && c.policy == ProxyReject {
		err = errProxyRejected
	}
	if err != nil && len(rest) > 0 || err == errProxyRejected {
		c.l.proxies.Load().rejected(c.l.log, c.l.table.counts.proxyTCP, c.client.addr, err)
	}

	if c.rest, c.err = rest, err; err != nil {
		return
	}
	if c.policy == ProxyUse && h.client.IsValid() {
		c.client = c.l.proxies.Load().client(h)
	}
	if !c.l.table.identify(limited(c), ClientKey(c.client.addr.Addr())) {
		c.err = net.ErrClosed
	}
	_ = c.SetReadDeadline(time.Time{})
}

// handshakeSlot implements handshaker.
func (c *proxiedConn) handshakeSlot() *handshakeSlot { return &limited(c).handshake }

// RemoteAddr returns the address of the client.
func (c *proxiedConn) RemoteAddr() net.Addr {
	c.once.Do(c.identify)
	return net.TCPAddrFromAddrPort(c.client.addr)
}

// LocalAddr returns the address that the proxy connected to, with the TLVs of its header: net/http
// shows a handler the connection's addresses, and not the connection.
func (c *proxiedConn) LocalAddr() net.Addr {
	c.once.Do(c.identify)
	if c.client.tlvs == "" {
		return c.Conn.LocalAddr()
	}
	return &proxiedAddr{c.Conn.LocalAddr(), c.client.tlvs}
}

// A proxiedAddr is the local address of a connection, with the TLVs of its proxy.
type proxiedAddr struct {
	net.Addr
	tlvs string
}

// ProxyTLVs returns the TLVs in the local address of a LimitedListener's connection: see
// dns.Session.ProxyTLVs.
func ProxyTLVs(local net.Addr) string {
	if a, ok := local.(*proxiedAddr); ok {
		return a.tlvs
	}
	return ""
}

func (c *proxiedConn) Read(p []byte) (int, error) {
	c.once.Do(c.identify)
	switch {
	case c.err != nil:
		return 0, c.err
	case len(c.rest) > 0:
		n := copy(p, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
