package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/util/flowcontrol"
)

// A transport is what every request of a client goes through: it keeps the
// limits that the options set, and sees whether the API server can be reached.
// (client-go has a limit of requests per second as well, but it leaves watches
// out, and nearly all we do is watch.)
type transport struct {
	next  http.RoundTripper
	pace  flowcontrol.RateLimiter // nil is no limit
	slots chan struct{}           // nil is no limit
	state *state
}

func newTransport(next http.RoundTripper, o Options, state *state) *transport {
	t := &transport{next: next, state: state}
	if o.QPS > 0 || o.Burst > 0 {
		qps, burst := o.QPS, o.Burst
		if qps == 0 {
			qps = 5 // client-go's default, as is the next
		}
		if burst == 0 {
			burst = 10
		}
		t.pace = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	}
	if o.MaxInflight > 0 {
		t.slots = make(chan struct{}, o.MaxInflight)
	}
	return t
}

// WrappedRoundTripper lets client-go find the connections to close.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip holds a slot from here to the end of the answer, but only to its
// headers for a watch, whose answer has no end.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if t.pace != nil {
		begin := time.Now()
		if err := t.pace.Wait(ctx); err != nil {
			return nil, err
		}
		t.state.paced(req, time.Since(begin))
	}
	release := func() {}
	if t.slots != nil {
		select {
		case t.slots <- struct{}{}:
			release = sync.OnceFunc(func() { <-t.slots })
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	begin := time.Now()
	resp, err := t.next.RoundTrip(req)
	t.state.answered(req, resp, time.Since(begin))
	if err != nil {
		release()
		if !errors.Is(ctx.Err(), context.Canceled) {
			what := "" // the ways in which a connection fails differ from one attempt to the next
			if errors.As(err, new(*tls.CertificateVerificationError)) {
				what = "certificate" // but this is another trouble than a server that is away
			}
			t.state.trouble("server", what, "cannot reach the API server; trying again", "server", req.URL.Host, "error", err)
		}
		return nil, noAnswer{err.Error(), true}
	}
	t.state.fine("server", "the API server can be reached again", "server", req.URL.Host)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable:
		// It is starting or overloaded, or there is only a proxy in its place.
		resp.Body.Close()
		release()
		return nil, noAnswer{resp.Status, false}
	}
	if req.URL.Query().Has("watch") {
		release()
	} else {
		resp.Body = &body{resp.Body, release}
	}
	return resp, nil
}

// noAnswer is the error of a request that nobody has answered. It hides the
// error that caused it, because client-go takes some of them for the end of a
// watch, and repeats others on its own.
type noAnswer struct {
	cause  string
	logged bool // where it was met, for the whole source
}

func (e noAnswer) Error() string { return e.cause }

type body struct {
	io.ReadCloser
	release func()
}

func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

var _ utilnet.RoundTripperWrapper = (*transport)(nil)
