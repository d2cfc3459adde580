package streams

import (
	"crypto/tls"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/transport"
)

const (
	// maxRequestBytes bounds the memory of the requests of all connections of a listener that
	// are being received and answered: less if the memory for connections is little.
	maxRequestBytes = 16 << 20
	// requestBytes is the memory of a request without its header and body: a goroutine, the
	// state of its stream, and buffers.
	requestBytes = 12 << 10
	// maxUseless is how many requests of a client may be refused, or reset at once by the
	// client, within a short time. uselessRate is how many may be in each second.
	maxUseless  = 500
	uselessRate = 1000
	// early is the age of a request below which a reset by the client makes it useless.
	early = 50 * time.Millisecond
	// pause is how long a client with more of them may not connect.
	pause = time.Second
	// waitingOf is of how many requests one, by chance, waits until its client has received the reply. That
	// takes a frame more.
	waitingOf = 32
	// maxIdleClients is about how many clients without requests are kept.
	maxIdleClients = 1000
)

// requests bounds what the clients of a listener have it do at the same time. A client may use
// as much memory as is free: one client leaves half of it, two leave a third, and so on, and
// there is always some for another client. A client with many useless requests is
// disconnected. Requests take no lock: when many wait for a processor, each of them would get
// the lock only after a turn of all others.
type requests struct {
	disconnected func(client netip.Addr, until time.Time)
	start        time.Time

	memory  *memory.Budget
	most    int64 // bytes
	used    atomic.Int64
	clients sync.Map     // of *httpClient by transport.ClientKey
	count   atomic.Int64 // of clients

	conns sync.Map // clients (netip.Addr) by net.Conn
}

// An httpClient is a client with requests, or with earlier ones.
type httpClient struct {
	used  atomic.Int64
	until atomic.Int64 // the client may not connect before that time since requests.start

	mu      sync.Mutex // for the useless requests
	useless float64    // at the time of the last one
	last    time.Duration
}

func (r *requests) init(disconnected func(netip.Addr, time.Time), b *memory.Budget) {
	r.disconnected, r.start = disconnected, time.Now()
	r.memory = b
	r.most = min(maxRequestBytes, b.Max(memory.HTTPS)/2)
}

// setState follows the state of a connection. The address of a connection is not asked for
// before it is active: a proxy may have to send it.
func (r *requests) setState(c net.Conn, state http.ConnState) {
	if state == http.StateNew || state == http.StateIdle {
		return
	}
	if state != http.StateActive {
		r.conns.Delete(c)
		return
	}
	if _, known := r.conns.Load(c); known {
		return
	}
	if t, ok := c.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol == "h2" {
		transport.TakeTurns(t.NetConn())
	}
	r.conns.Store(c, keyOf(transport.AddrPort(c.RemoteAddr())))
}

// client returns the state of a client.
func (r *requests) client(key netip.Addr) *httpClient {
	if c, ok := r.clients.Load(key); ok {
		return c.(*httpClient)
	}
	if r.count.Add(1)%maxIdleClients == 0 {
		r.forget()
	}
	c, _ := r.clients.LoadOrStore(key, new(httpClient))
	return c.(*httpClient)
}

// forget removes clients without requests. One that has just got its client counts for itself.
func (r *requests) forget() {
	now := time.Since(r.start)
	r.clients.Range(func(key, value any) bool {
		if c := value.(*httpClient); c.used.Load() == 0 && c.until.Load() < int64(now) {
			r.clients.Delete(key)
		}
		return true
	})
}

// begin counts a request. It returns false if the client uses too much. Otherwise the caller
// must subtract the size from c.used and r.used in the end.
func (r *requests) begin(c *httpClient, size int64, now time.Duration) bool {
	if int64(now) < c.until.Load() {
		return false
	}
	if has, used := c.used.Add(size), r.used.Add(size); has > r.memory.Room(memory.HTTPS, r.most)-used {
		r.end(c, size)
		return false
	}
	return true
}

func (r *requests) end(c *httpClient, size int64) {
	c.used.Add(-size)
	r.used.Add(-size)
}

// addUseless counts a useless request, unless another one is being counted. It closes the
// connections of a client that has too many.
func (r *requests) addUseless(key netip.Addr, c *httpClient, now time.Duration) {
	if int64(now) < c.until.Load() || !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()

	c.useless = max(0, c.useless-(now-c.last).Seconds()*uselessRate) + 1
	c.last = now
	if c.useless < maxUseless {
		return
	}

	c.useless = 0
	c.until.Store(int64(now + pause))
	r.disconnected(key, r.start.Add(now+pause))
	r.conns.Range(func(conn, client any) bool {
		if client == key {
			_ = tcpConn(conn.(net.Conn)).Close() // that of TLS would send
		}
		return true
	})
}

// tcpConn returns the connection below TLS.
func tcpConn(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

func keyOf(peer netip.AddrPort) netip.Addr { return transport.ClientKey(peer.Addr().Unmap()) }

// ServeHTTP answers a request within the bounds of the listener. Requests over them are reset:
// the client may not read a reply.
func (l *HTTPS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	key, size, begin := keyOf(peer), sizeOf(r), time.Since(l.requests.start)
	c := l.requests.client(key)
	if !l.requests.begin(c, size, begin) {
		l.CountOverClient()
		l.requests.addUseless(key, c, begin)
		panic(http.ErrAbortHandler)
	}

	defer l.requests.end(c, size)
	if l.stopping.Load() && r.ProtoMajor == 2 {
		w.Header().Set("Connection", "close") // GOAWAY: the client sends further requests over another connection
	}
	l.handler.ServeHTTP(w, r)
	if rand.IntN(waitingOf) == 0 && r.ProtoMajor == 2 && w.Header()[grpcMessage] == nil {
		l.requests.await(w, c, size)
	}
	if now := time.Since(l.requests.start); r.Context().Err() != nil && now-begin < early {
		l.requests.addUseless(key, c, now)
	}
}

// await counts a request for waitingOf until it has sent the reply. net/http sends a small one when the handler has
// returned, and waits for a client that leaves no room for it: nothing else counts such requests.
func (r *requests) await(w http.ResponseWriter, c *httpClient, size int64) {
	size *= waitingOf - 1
	c.used.Add(size)
	r.used.Add(size)
	defer r.end(c, size)
	_ = http.NewResponseController(w).Flush()
}

// sizeOf returns the memory of a request. net/http keeps the first bytes of a body in a buffer
// for its declared length, of at most 16 KB.
func sizeOf(r *http.Request) int64 {
	n := requestBytes + len(r.RequestURI) + int(min(max(r.ContentLength, 0), 16<<10))
	for key, values := range r.Header {
		for _, v := range values {
			n += len(key) + len(v)
		}
	}
	return int64(n)
}
