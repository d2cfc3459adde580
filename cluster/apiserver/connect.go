package apiserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// A connector lets one request at a time open a connection to the API server, since over
// HTTP/2 the others can share it. An API server that has restarted gets connections from all
// of its clients at once, and each costs it about a millisecond of a processor for the TLS
// handshake. If there are too many, handshakes time out; if they were all repeated at
// once, none would ever end in time. So after such a timeout no request opens a connection for a
// random time, whose limit doubles from first to longest.
type connector struct {
	next           http.RoundTripper
	first, longest time.Duration
	opening        chan struct{} // has an element while a connection is opened, or must not be
	limit          time.Duration // the last limit, or 0; guarded by opening
}

func newConnector(next http.RoundTripper) *connector {
	return &connector{next: next, first: 5 * time.Second, longest: 20 * time.Second, opening: make(chan struct{}, 1)}
}

func (c *connector) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	select {
	case c.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var opened sync.Once
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { opened.Do(c.succeeded) }}
	resp, err := c.next.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	opened.Do(func() { c.failed(ctx, err) })
	return resp, err
}

func (c *connector) succeeded() {
	c.limit = 0
	<-c.opening
}

func (c *connector) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || !handshakeTimedOut(err) {
		<-c.opening
		return
	}
	c.limit = min(max(c.first, 2*c.limit), c.longest)
	time.AfterFunc(rand.N(c.limit), func() { <-c.opening })
}

// handshakeTimedOut reports whether a TCP connection was opened, but its TLS handshake took
// too long.
func handshakeTimedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	if !ok || !timeout.Timeout() {
		return false
	}
	op, ok := errors.AsType[*net.OpError](err)
	return !ok || op.Op != "dial"
}
