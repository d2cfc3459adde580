package streams

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"log"
	"math"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/wire"
)

const (
	path        = "/dns-query"
	messageType = "application/dns-message"
)

// HTTPS serves DNS over HTTPS with HTTP/1.1 and HTTP/2, or over gRPC; without TLS if the
// options have none, for a proxy that has it.
type HTTPS struct {
	listener
	tcp      *transport.LimitedListener
	server   http.Server
	handler  http.Handler
	requests requests
	busy     busy
	stopping atomic.Bool
	running  sync.WaitGroup
}

// ListenHTTPS opens addr. The caller must call Stop.
func ListenHTTPS(ctx context.Context, addr netip.AddrPort, o Options) (*HTTPS, error) {
	l := new(HTTPS)
	responses := newStatusCounter(o.Metrics, "coredns_dns_https_responses_total",
		"Replies over HTTPS, by HTTP status.", o.Name)
	return l, l.open(ctx, addr, o, &queries{&l.listener, responses}, "h2", "http/1.1")
}

// open opens addr for a handler of requests, with these protocols (ALPN).
func (l *HTTPS) open(ctx context.Context, addr netip.AddrPort, o Options, handler http.Handler, names ...string) error {
	l.init(o)
	var err error
	if l.tcp, err = transport.ListenTCP(ctx, addr, o.Options, l.maxConns); err != nil {
		l.Close()
		return err
	}
	l.addr = l.tcp.Address
	l.busy.conns = map[net.Conn]struct{}{}
	l.handler = handler
	l.requests.init(l.tcp.Refuse, o.Memory)

	protocols := new(http.Protocols)
	protocols.SetHTTP1(slices.Contains(names, "http/1.1"))
	protocols.SetHTTP2(o.TLS != nil)
	protocols.SetUnencryptedHTTP2(o.TLS == nil)
	l.server = http.Server{
		Handler: l,
		ConnState: func(c net.Conn, state http.ConnState) {
			l.busy.setState(c, state)
			transport.SetBusy(c, state == http.StateActive)
			l.requests.setState(c, state)
		},
		ReadTimeout:       l.o.MessageTimeout,
		ReadHeaderTimeout: l.o.MessageTimeout,
		WriteTimeout:      l.o.WriteTimeout + maxWait,
		IdleTimeout:       l.o.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		Protocols:         protocols,
		ErrorLog:          log.New(io.Discard, "", 0), // clients cause these errors
	}

	// No larger buffers than a message needs.
	l.server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams:          o.Limits.Streams,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerConnection: 64 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
		WriteByteTimeout:              l.o.WriteTimeout,
	}
	if o.TLS != nil {
		l.server.TLSConfig = o.TLS.Config(names...)
	}
	return nil
}

// maxWait is how long a query may wait in a handler.
const maxWait = 10 * time.Second

// maxHeaderBytes bounds the header of a request. The path of a GET has the whole query.
var maxHeaderBytes = 8<<10 + base64.RawURLEncoding.EncodedLen(wire.MaxMessage)

// Files returns a copy of the socket, for another process. The caller must close it.
func (l *HTTPS) Files() ([]*os.File, error) { return files(l.tcp) }

// SetProxies sets the proxies of future connections.
func (l *HTTPS) SetProxies(o *transport.ProxyOptions) { l.tcp.SetProxies(o) }

// Serve starts to answer and returns at once.
func (l *HTTPS) Serve() {
	l.running.Go(func() {
		if l.o.TLS != nil {
			_ = l.server.ServeTLS(l.tcp, "", "")
		} else {
			_ = l.server.Serve(l.tcp)
		}
	})
}

// Stop closes the socket and idle connections, and waits for requests that are being received
// or answered, at most for the grace period.
func (l *HTTPS) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), l.o.Grace)
	defer cancel()
	_ = l.tcp.Close()
	l.running.Wait() // no more connections
	l.stopping.Store(true)
	l.server.SetKeepAlivesEnabled(false) // they are closed after the next reply

	l.busy.wait(ctx)
	if l.server.Shutdown(ctx) != nil {
		_ = l.server.Close()
	}
	l.Close()
}

// busy holds the connections that are not idle: new ones, and those with requests.
// http.Server.Shutdown would close them without a reply if their request has not reached the
// handler.
type busy struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	none  chan struct{} // closed when conns is empty; nil unless wait is waiting
}

// setState is the ConnState of the server.
func (b *busy) setState(c net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state == http.StateNew || state == http.StateActive {
		b.conns[c] = struct{}{}
		return
	}
	delete(b.conns, c)
	if b.none != nil && len(b.conns) == 0 {
		close(b.none)
		b.none = nil
	}
}

// wait blocks until there are none, or ctx ends.
func (b *busy) wait(ctx context.Context) {
	b.mu.Lock()
	if len(b.conns) == 0 {
		b.mu.Unlock()
		return
	}
	none := make(chan struct{})
	b.none = none
	b.mu.Unlock()

	select {
	case <-none:
	case <-ctx.Done():
	}
}

// queries answers the HTTP requests of a listener.
type queries struct {
	*listener
	responses statusCounter
}

func (h *queries) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Context().Err() != nil {
		return // the client has reset the stream before its turn
	}

	status, from := http.StatusOK, origin(r)
	client := from.Peer.Addr()
	packet, refused := h.message(w, r, client)
	var reply struct {
		packet []byte
		ttl    uint32
	}
	use := func(q *dns.Query) { reply.packet, reply.ttl = bytes.Clone(q.Reply()), freshness(q) }
	switch {
	case refused != 0:
		status = refused
	case !h.Answer(r.Context(), packet, from, use):
		status = http.StatusBadRequest
	case reply.packet == nil: // dropped
		status = http.StatusInternalServerError
	}

	reserved, ok := h.load.enqueue(client, reply.packet)
	defer h.load.dequeue(client, reserved)
	if !ok {
		status = http.StatusServiceUnavailable
	}
	h.responses.add(status)
	if status != http.StatusOK {
		http.Error(w, http.StatusText(status), status)
		return
	}

	header := w.Header()
	header.Set("Content-Type", messageType)
	header.Set("Cache-Control", "max-age="+strconv.FormatUint(uint64(reply.ttl), 10))
	header.Set("Content-Length", strconv.Itoa(len(reply.packet)))
	_, _ = w.Write(reply.packet)
}

// message returns the query in a client's request, or the status with which it is refused.
func (h *queries) message(w http.ResponseWriter, r *http.Request, client netip.Addr) (packet []byte, refused int) {
	if refused = refuse(w, r); refused != 0 {
		// Else the server would receive the body before it replies.
		if r.ContentLength != 0 && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		return nil, refused
	}

	var err error
	switch r.Method {
	case http.MethodGet:
		values := r.URL.Query()["dns"]
		if len(values) != 1 {
			return nil, http.StatusBadRequest
		}
		if base64.RawURLEncoding.DecodedLen(len(values[0])) > wire.MaxMessage {
			return nil, http.StatusRequestURITooLong
		}
		packet, err = base64.RawURLEncoding.DecodeString(values[0])

	case http.MethodPost:
		packet, err = h.readBody(w, r, client, wire.MaxMessage)
		if _, tooLarge := err.(*http.MaxBytesError); tooLarge {
			return nil, http.StatusRequestEntityTooLarge
		}
		if err == errBusy {
			return nil, http.StatusServiceUnavailable
		}
	}

	if err != nil {
		return nil, http.StatusBadRequest
	}
	return packet, 0
}

// refuse returns the status with which the header of a request is refused, or 0.
func refuse(w http.ResponseWriter, r *http.Request) int {
	switch {
	case r.URL.Path != path:
		return http.StatusNotFound
	case r.Method == http.MethodPost:
		if !isMessage(r.Header.Get("Content-Type")) {
			return http.StatusUnsupportedMediaType
		}
		if r.ContentLength > wire.MaxMessage {
			return http.StatusRequestEntityTooLarge
		}
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET, POST")
		return http.StatusMethodNotAllowed
	}
	return 0
}

// isMessage reports whether a media type, which may have parameters, is that of DNS messages.
func isMessage(mediaType string) bool {
	if mediaType == messageType {
		return true
	}
	mediaType, _, _ = mime.ParseMediaType(mediaType)
	return mediaType == messageType
}

// freshness returns for how long a cache of HTTP may keep the reply (RFC 8484 §5.1): the
// smallest TTL of its records; without an answer at most the MINIMUM of the SOA record.
// Failures are not kept.
func freshness(q *dns.Query) uint32 {
	ttl := uint32(math.MaxUint32)
	if q.RCode == wire.NoError || q.RCode == wire.NXDomain {
		q.Answer.Walk(func(_ wire.Section, r wire.Record) bool {
			ttl = min(ttl, r.TTL(q.Answer.Buf))
			if r.Type == wire.TypeSOA && r.Next-r.RData >= 4 && q.Answer.Count[wire.Answers] == 0 {
				ttl = min(ttl, binary.BigEndian.Uint32(q.Answer.Buf[r.Next-4:]))
			}
			return true
		})
	}
	if ttl == math.MaxUint32 {
		return 0
	}
	return ttl
}

// origin returns where the query in a request comes from.
func origin(r *http.Request) transport.Origin {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return transport.Origin{
		Peer:      netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port()),
		Local:     transport.AddrPort(local),
		Encrypted: r.TLS != nil,
		Header:    r.Header,
		ProxyTLVs: transport.ProxyTLVs(local),
	}
}
