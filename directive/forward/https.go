package forward

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/redact"
	"github.com/seamark/seamark/wire"
)

const (
	dnsMessage = "application/dns-message" // RFC 8484 §6
	// maxHTTPConns is the maximum number of connections to an upstream that
	// supports HTTP/1.1 only; HTTP/2 needs one.
	maxHTTPConns = 16
	// maxMultiplexed bounds the queries that wait for an upstream over HTTPS, gRPC or
	// QUIC, of which a client has as many as are free. Each has a goroutine, and costs ten
	// times as much as one over another transport.
	maxMultiplexed = 1024
)

// A trackedConn is a connection that is closed when the set of upstreams stops, unless it
// is closed before.
type trackedConn struct {
	net.Conn
	untrack func() bool
	release func() // may be called again
}

func (c *trackedConn) Close() error {
	c.untrack()
	c.release()
	return c.Conn.Close()
}

// httpClient returns the client for DNS over HTTPS and gRPC. It looks up host names when
// it connects.
func (u *upstream) httpClient() *http.Client {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.client != nil {
		return u.client
	}

	o := u.options()
	// Later queries share a connection, so connecting may take longer than a query.
	timeout := max(o.readTimeout, minDialTimeout)
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if path, ok := strings.CutPrefix(u.url, "unix://"); ok {
			network, addr = "unix", path
		} else if u.scheme == schemeGRPC {
			addr = u.addr.String()
		}

		to := o.sourceAddress // of a host name, only addresses of this family are used
		if ap, err := netip.ParseAddrPort(addr); err == nil {
			to = ap.Addr()
		}
		d := o.dialer(network, to)
		d.Resolver, d.Timeout = u.set.resolver, timeout
		release, err := u.reserveHTTP()
		if err != nil {
			return nil, err
		}
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			release()
			return nil, err
		}
		untrack := context.AfterFunc(u.set.ctx, func() { release(); _ = conn.Close() })
		return &trackedConn{conn, untrack, release}, nil
	}

	protocols := new(http.Protocols)
	protocols.SetHTTP1(u.scheme == schemeHTTPS)
	protocols.SetHTTP2(!o.plainText)
	protocols.SetUnencryptedHTTP2(o.plainText)
	u.client = &http.Client{
		Transport: &http.Transport{
			DialContext:         dial,
			TLSClientConfig:     u.set.tlsConfig(u.upstreamID),
			TLSHandshakeTimeout: timeout,
			Protocols:           protocols,
			HTTP2:               &http.HTTP2Config{SendPingTimeout: timeout, PingTimeout: timeout},
			IdleConnTimeout:     max(o.expire, time.Millisecond), // 0 would mean forever
			MaxIdleConnsPerHost: o.idleLimit(maxHTTPConns),
			MaxConnsPerHost:     maxHTTPConns,
			DisableCompression:  true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return u.client
}

// reserveHTTP reserves the memory of a connection, until release is called.
func (u *upstream) reserveHTTP() (release func(), err error) {
	if err := u.reserve(int(u.httpConns.Add(1)-1), httpMemory); err != nil {
		u.httpConns.Add(-1)
		return nil, err
	}
	return sync.OnceFunc(func() {
		u.httpConns.Add(-1)
		u.unreserve(httpMemory)
	}), nil
}

// sendMultiplexed sends a with the ID 0 (RFC 8484 §4.1, RFC 9250 §4.2.1) and waits for the reply.
func (u *upstream) sendMultiplexed(a *attempt) {
	a.sent = clock.Now()
	ctx, cancel := context.WithTimeout(u.set.ctx, u.options().readTimeout)
	defer cancel()

	age := uint32(0) // of a reply that an HTTP cache has kept, in seconds
	exchange := func(ctx context.Context, packet []byte) (answer []byte, err error) {
		answer, age, err = u.exchangeHTTPS(ctx, packet)
		return answer, err
	}
	query := a.packet()
	switch u.scheme {
	case schemeGRPC:
		exchange = u.exchangeGRPC
	case schemeQUIC:
		exchange = u.exchangeQUIC
		if a.edns {
			query = a.request.pad(query)
		}
	}

	packet, err := exchange(ctx, query)
	if u.set.ctx.Err() != nil {
		err = errStopped
	}
	if err != nil {
		a.closed = u.scheme == schemeQUIC && err != errStopped && !endsConnection(err) && !isTimeout(err)
		u.fail(a, err)
		return
	}

	r, f := (*reply)(nil), malformed
	if len(packet) >= wire.HeaderLen {
		r, f = u.parse(a, packet, new(parser), wire.MaxMessage)
	}
	if f != valid {
		u.reject(a, f)
		return
	}
	if age > 0 {
		(&wire.Answer{Buf: r.records}).Age(0, age)
	}
	u.finish(a, r)
}

// httpError returns the error of a request without its URL, which may contain the query.
func (u *upstream) httpError(err error) error {
	return fmt.Errorf("%s: %w", u, redact.Error(err))
}

// exchangeHTTPS sends a query over HTTPS and returns the reply, and for how many seconds HTTP caches have kept it
// (RFC 8484 §5.1, RFC 9111 §5.1).
func (u *upstream) exchangeHTTPS(ctx context.Context, packet []byte) (answer []byte, age uint32, err error) {
	method, address, body := http.MethodPost, u.url, io.Reader(bytes.NewReader(packet))
	if u.options().dohMethod == http.MethodGet {
		method, body = http.MethodGet, nil
		address += "?dns=" + base64.RawURLEncoding.EncodeToString(packet)
	}

	request, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Accept", dnsMessage)
	if body != nil {
		request.Header.Set("Content-Type", dnsMessage)
	}

	response, err := u.httpClient().Do(request)
	if err != nil {
		return nil, 0, u.httpError(err)
	}
	defer func() { _ = response.Body.Close() }()
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || mediaType != dnsMessage {
		return nil, 0, fmt.Errorf("%s: got status %d %s and content type %q, want a DNS message",
			u.url, response.StatusCode, http.StatusText(response.StatusCode), mediaType)
	}

	answer, err = u.readAll(io.LimitReader(response.Body, wire.MaxMessage+1), wire.MaxMessage+1)
	if err == nil && len(answer) > wire.MaxMessage {
		err = fmt.Errorf("%s: reply is too large", u.url)
	}
	if n, invalid := strconv.ParseUint(response.Header.Get("Age"), 10, 31); invalid == nil || errors.Is(invalid, strconv.ErrRange) {
		age = uint32(n)
	}
	return answer, age, err
}
