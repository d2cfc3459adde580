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

// An abuse is a way to hold memory or CPU time of a server over HTTPS.
type abuse struct {
	name, title string
	run         func(*abuser) error
}

func abuses() []abuse {
	return []abuse{
		{"declared", "bodies with a length of 65,535 bytes, of which one is sent",
			func(a *abuser) error { return a.bodies("65535", 0) }},
		{"undeclared", "bodies without a length, of which one byte is sent",
			func(a *abuser) error { return a.bodies("", 0) }},
		{"headers", "headers of 80 KB before a body that is not sent",
			func(a *abuser) error { return a.bodies("65535", 80<<10) }},
		{"window", "replies for which the client leaves no room", (*abuser).closedWindow},
		{"reset", "streams that are reset at once", (*abuser).resets},
		{"unread", "queries without reading a byte", (*abuser).unread},
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
	plain, err := freeAddress()
	if err != nil {
		return err
	}

	at, err := freeAddress()
	if err != nil {
		return err
	}

	s, err := b.configured("seamark", plain, lines(`
.:%d https://.:%d {
    bind 127.0.0.1
    tls %s %s
    https {
       max_connections %d
    }
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       %s
    }
}
`, plain.Port(), at.Port(), b.certificateFile(), b.keyFile(), limit, b.source()),
		b.binary, "serve", "--conf")
	if err != nil {
		return err
	}
	if err := s.await(ctx, b.pop.last()); err != nil {
		return err
	}

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
				c, err := newAbuser(abusing, at, a.name == "window")
				if err != nil {
					continue
				}
				opened.Add(1)
				_ = a.run(c)
				if c.close(); abusing.Err() == nil {
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
	ctx    context.Context
	conn   *tls.Conn
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
	a := &abuser{ctx: ctx, conn: c.(*tls.Conn), w: http2.NewFramer(c, c), open: make(chan struct{}, abuseStreams),
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

func (a *abuser) close() { a.conn.Close() }

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

// headers returns the header block of a request.
func headers(method, path, length string, filler int) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	e.SetMaxDynamicTableSize(0)
	for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "bench.example"},
		{":path", path},
		{"content-type", "application/dns-message"}, {"content-length", length},
		{"x-filler", strings.Repeat("~", filler)}} {
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

// streams keeps streams open until the connection ends.
func (a *abuser) streams(start func(id uint32) error) error {
	go a.read()
	for id := uint32(1); ; id += 2 {
		select {
		case a.open <- struct{}{}:
		case <-a.closed:
			return nil
		}
		a.mu.Lock()
		err := start(id)
		a.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// bodies keeps requests open whose bodies are not complete.
func (a *abuser) bodies(length string, filler int) error {
	block := headers("POST", "/dns-query", length, filler)
	return a.streams(func(id uint32) error {
		return errors.Join(a.begin(id, block, false), a.w.WriteData(id, false, []byte{0}))
	})
}

const abusePath = "/dns-query?dns=AAABAAABAAAAAAAABWJlbmNoAAABAAE"

func (a *abuser) closedWindow() error {
	block := headers("GET", abusePath, "", 0)
	return a.streams(func(id uint32) error { return a.begin(id, block, true) })
}

// resets sends requests and resets their streams.
func (a *abuser) resets() error {
	go a.read()
	block := headers("GET", abusePath, "", 0)
	return a.repeat(func(id uint32) error {
		return errors.Join(a.begin(id, block, true), a.w.WriteRSTStream(id, http2.ErrCodeCancel))
	})
}

// unread sends requests and reads nothing.
func (a *abuser) unread() error {
	block := headers("GET", abusePath, "", 0)
	return a.repeat(func(id uint32) error { return a.begin(id, block, true) })
}

// repeat starts streams until one fails.
func (a *abuser) repeat(start func(id uint32) error) error {
	for id := uint32(1); ; id += 2 {
		a.mu.Lock()
		err := start(id)
		a.mu.Unlock()
		if err != nil {
			return err
		}
	}
}
