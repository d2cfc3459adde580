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
	"net/url"
	"time"

	"github.com/seamark/seamark/wire"
)

const (
	dnsMessage = "application/dns-message" // RFC 8484 §6
	// webConns is how many connections there may be to an upstream that knows
	// HTTP/1.1 alone; HTTP/2 needs one.
	webConns = 16
)

// A webConn is closed at the latest when the set of upstreams stops.
type webConn struct {
	net.Conn
	forget func() bool
}

func (c *webConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

// webClient makes the client of DNS over HTTPS. Names of hosts are looked up
// when a connection is made.
func (u *upstream) webClient() *http.Client {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.web != nil {
		return u.web
	}
	o := u.options()
	// A connection comes about for whoever asks next, and not within the time of
	// one question; it must not take for ever all the same, or hang later.
	patience := max(o.readTimeout, dialTime)
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		to := o.source // of a name, the addresses of its family
		if ap, err := netip.ParseAddrPort(addr); err == nil {
			to = ap.Addr()
		}
		d := o.dialer(network, to)
		d.Resolver, d.Timeout = u.set.resolver, patience
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &webConn{conn, context.AfterFunc(u.set.ctx, func() { _ = conn.Close() })}, nil
	}
	u.web = &http.Client{
		Transport: &http.Transport{
			DialContext:         dial,
			TLSClientConfig:     u.set.tlsFor(u.target),
			TLSHandshakeTimeout: patience,
			ForceAttemptHTTP2:   true,
			HTTP2:               &http.HTTP2Config{SendPingTimeout: patience, PingTimeout: patience},
			IdleConnTimeout:     max(o.expire, time.Millisecond), // 0 would be for ever
			MaxIdleConnsPerHost: o.kept(webConns),
			MaxConnsPerHost:     webConns,
			DisableCompression:  true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return u.web
}

// sendHTTPS sends a as RFC 8484 has it, with id 0, and waits for the reply.
func (u *upstream) sendHTTPS(a *attempt) {
	var t table
	t.add(a) // for the time; nobody can find it
	a.packet[0], a.packet[1] = 0, 0
	ctx, cancel := context.WithTimeout(u.set.ctx, u.options().readTimeout)
	defer cancel()
	packet, err := u.exchangeHTTPS(ctx, a.packet)
	switch {
	case u.set.ctx.Err() != nil:
		u.failed(a, errStopped)
		return
	case err != nil:
		u.failed(a, err)
		return
	}
	r, why := (*reply)(nil), malformed
	if len(packet) >= wire.HeaderLen {
		r, why = u.parse(a, packet, new(parser), wire.MaxMessage)
	}
	if why != sound {
		u.counted.discard(why)
		u.failed(a, fmt.Errorf("%s: reply is not an answer: %s", u.url, why))
		return
	}
	u.answered(a, r)
}

func (u *upstream) exchangeHTTPS(ctx context.Context, packet []byte) (answer []byte, err error) {
	method, at, body := http.MethodPost, u.url, io.Reader(bytes.NewReader(packet))
	if u.options().dohGet {
		method, body = http.MethodGet, nil
		at += "?dns=" + base64.RawURLEncoding.EncodeToString(packet)
	}
	request, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", dnsMessage)
	if body != nil {
		request.Header.Set("Content-Type", dnsMessage)
	}
	response, err := u.webClient().Do(request)
	if err != nil {
		var of *url.Error // its text has the whole question in it
		if errors.As(err, &of) {
			err = of.Err
		}
		return nil, fmt.Errorf("%s: %w", u.url, err)
	}
	defer func() { _ = response.Body.Close() }()
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || kind != dnsMessage {
		return nil, fmt.Errorf("%s: %s, %q", u.url, response.Status, kind)
	}
	answer, err = io.ReadAll(io.LimitReader(response.Body, wire.MaxMessage+1))
	if err == nil && len(answer) > wire.MaxMessage {
		err = fmt.Errorf("%s: reply is too large", u.url)
	}
	return answer, err
}
