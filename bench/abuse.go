//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	abusers      = 200 // connections of the abusive client, the default limit of a listener
	abuseStreams = 250 // streams of one, also the default
	abuseQuery   = 2 * time.Second
)

// An abuse is a way to hold memory or CPU time of a server over HTTPS: the requests that a client
// repeats on each of its connections. The others have a query and no body.
type abuse struct {
	name, title string
	body        bool   // POST with a body of which one byte is sent
	length      string // the content-length of the body
	filler      int    // bytes of a header
	noWindow    bool   // the server may send no bodies of replies
	reset       bool   // the client resets its streams at once
	unread      bool   // the client reads nothing
}

func abuses() []abuse {
	return []abuse{
		{name: "declared", title: "bodies with a length of 65,535 bytes, of which one is sent",
			body: true, length: "65535"},
		{name: "undeclared", title: "bodies without a length, of which one byte is sent", body: true},
		{name: "headers", title: "headers of 80 KB before a body that is not sent",
			body: true, length: "65535", filler: 80 << 10},
		{name: "window", title: "replies for which the client leaves no room", noWindow: true},
		{name: "reset", title: "streams that are reset at once", reset: true},
		{name: "unread", title: "queries without reading a byte", unread: true},
	}
}

// abuse measures the memory of our server while one client abuses HTTP/2, and whether
// another client is answered meanwhile.
func (b *bench) abuse(ctx context.Context) error {
	defer b.stopServers()
	if err := b.writeCertificate(); err != nil {
		return err
	}
	for _, limit := range []int{abusers, 0} {
		for _, a := range abuses() {
			if err := b.abuseOnce(ctx, a, limit); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
		}
	}
	return nil
}

func (b *bench) abuseOnce(ctx context.Context, a abuse, limit int) error {
	defer b.stopServers()
	p := b.seamark("abuse.Corefile", map[string]any{"source": b.source(), "limit": limit})
	s, err := b.start(ctx, p, b.pop.last())
	if err != nil {
		return err
	}
	at := s.at["https"]

	good := &goodClient{to: at, query: b.pop.last()}
	for range 20 {
		good.ask(ctx)
	}

	if good.failed > 0 {
		return fmt.Errorf("the good client was not answered before the abuse: %w", good.last)
	}
	if err := pause(ctx, b.settle()); err != nil {
		return err
	}

	idle, err := memory(s.pid())
	if err != nil {
		return err
	}
	if err := forgetPeak(s.pid()); err != nil {
		return err
	}

	length := max(b.time, time.Second) * 5
	*good = goodClient{to: at, query: b.pop.last()}
	abusing, end := context.WithTimeout(ctx, length)
	defer end()

	var running sync.WaitGroup
	var opened, ended atomic.Int64
	for range abusers {
		running.Go(func() {
			for abusing.Err() == nil {
				c, err := newAbuser(abusing, at, a.noWindow)
				if err != nil {
					continue
				}
				opened.Add(1)
				_ = c.run(a)
				if c.conn.Close(); abusing.Err() == nil {
					ended.Add(1)
				}
			}
		})
	}

	for abusing.Err() == nil {
		good.ask(abusing)
	}

	running.Wait()
	during, err := memory(s.pid())
	if err != nil {
		return err
	}
	if err := pause(ctx, b.settle()); err != nil {
		return err
	}

	after, err := memory(s.pid())
	if err != nil {
		return err
	}

	key := fmt.Sprintf("abuse/%s/%d", a.name, limit)
	title := fmt.Sprintf("%s, max_connections %d", a.title, limit)
	b.say("%s: %d connections, %d ended by the server, good client: %d answers, %d failures, last error %v", key,
		opened.Load(), ended.Load(), good.answers, good.failed, good.last)
	b.megabytes(key+"/idle", "resident before "+title, idle.resident)
	b.megabytes(key+"/peak", "more at the peak", during.peak-idle.resident)
	b.megabytes(key+"/after", "more after it", after.resident-idle.resident)
	b.number(key+"/answered", "answers to another client", "%",
		100*float64(good.answers)/math.Max(1, float64(good.answers+good.failed)))
	b.number(key+"/slowest", "slowest of these answers", "ms", float64(good.slowest)/float64(time.Millisecond))
	return nil
}

// A goodClient sends one query at a time, over a new connection for every second one.
type goodClient struct {
	to              netip.AddrPort
	query           *lookup
	answers, failed int
	slowest         time.Duration
	last            error
	kept            *http.Client
}

func (g *goodClient) ask(ctx context.Context) {
	if g.kept == nil {
		g.kept = &http.Client{Timeout: abuseQuery, Transport: &http.Transport{
			TLSClientConfig: clientTLS(), ForceAttemptHTTP2: true,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
				return d.DialContext(ctx, network, g.to.String())
			},
		}}
	} else if (g.answers+g.failed)%2 == 1 {
		defer func() {
			g.kept.CloseIdleConnections()
			g.kept = nil
		}()
	}

	start := time.Now()
	_, err := load{to: g.to}.post(g.kept, g.query)
	switch took := time.Since(start); {
	case err == nil:
		g.answers++
		g.slowest = max(g.slowest, took)
	case ctx.Err() == nil:
		g.failed++
		g.last = err
	}
}

// An abuser is one HTTP/2 connection.
type abuser struct {
	conn   net.Conn
	w      *http2.Framer
	mu     sync.Mutex // guards w, and waits for its settings
	open   chan struct{}
	closed chan struct{}
}

// newAbuser connects. Without a window the server may send no bodies.
func newAbuser(ctx context.Context, to netip.AddrPort, noWindow bool) (*abuser, error) {
	d := tls.Dialer{Config: clientTLS("h2")}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	a := &abuser{conn: c, w: http2.NewFramer(c, c), open: make(chan struct{}, abuseStreams),
		closed: make(chan struct{})}
	a.w.SetReuseFrames()
	window := uint32(1 << 20)
	if noWindow {
		window = 0
	}
	_, err = io.WriteString(c, http2.ClientPreface)
	err = errors.Join(err, a.w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	if err != nil {
		c.Close()
	}
	context.AfterFunc(ctx, func() { c.Close() })
	return a, err
}

// read reads frames until the connection ends, and releases the place of a stream that ends.
func (a *abuser) read() {
	defer close(a.closed)
	for {
		f, err := a.w.ReadFrame()
		if err != nil {
			return
		}

		ended := false
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			ended = true
		case *http2.HeadersFrame:
			ended = f.StreamEnded()
		case *http2.DataFrame:
			ended = f.StreamEnded()
		case *http2.SettingsFrame:
			if !f.IsAck() {
				a.mu.Lock()
				_ = a.w.WriteSettingsAck()
				a.mu.Unlock()
			}
		}

		if ended {
			select {
			case <-a.open:
			default:
			}
		}
	}
}

// run sends requests until the connection ends.
func (a *abuser) run(w abuse) error {
	if !w.unread {
		go a.read()
	}
	block := w.headers()
	for id := uint32(1); ; id += 2 {
		// Streams that stay open are limited. read releases their places.
		if !w.unread && !w.reset {
			select {
			case a.open <- struct{}{}:
			case <-a.closed:
				return nil
			}
		}

		a.mu.Lock()
		err := a.begin(id, block, !w.body)
		if w.body {
			err = errors.Join(err, a.w.WriteData(id, false, []byte{0}))
		}
		if w.reset {
			err = errors.Join(err, a.w.WriteRSTStream(id, http2.ErrCodeCancel))
		}
		a.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// headers returns the header block of a request.
func (w abuse) headers() []byte {
	method, path := "GET", "/dns-query?dns=AAABAAABAAAAAAAABWJlbmNoAAABAAE"
	if w.body {
		method, path = "POST", "/dns-query"
	}
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	e.SetMaxDynamicTableSize(0)
	for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "bench.example"},
		{":path", path}, {"content-type", "application/dns-message"}, {"content-length", w.length},
		{"x-filler", strings.Repeat("~", w.filler)}} {
		if f[1] != "" {
			_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true})
		}
	}
	return block.Bytes()
}

// begin writes the header of a request.
func (a *abuser) begin(id uint32, block []byte, end bool) error {
	const most = 16 << 10
	first := block[:min(len(block), most)]
	err := a.w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: end,
		EndHeaders: len(first) == len(block)})
	for rest := block[len(first):]; err == nil && len(rest) > 0; {
		n := min(len(rest), most)
		err = a.w.WriteContinuation(id, n == len(rest), rest[:n])
		rest = rest[n:]
	}
	return err
}
