package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/seamark/seamark/cluster"
)

// limits are the limits that the options set on the requests of a source.
// (client-go has a limit of requests per second as well, but does not apply it to
// watches, and nearly all requests are watches.)
type limits struct {
	rate  flowcontrol.RateLimiter // nil means no limit
	slots chan struct{}           // nil means no limit
}

func newLimits(o cluster.Options) *limits {
	l := new(limits)
	if o.QPS > 0 || o.Burst > 0 {
		qps, burst := o.QPS, o.Burst
		if qps == 0 {
			qps = 5 // client-go's default, as is the next
		}
		if burst == 0 {
			burst = 10
		}
		l.rate = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	}
	if o.MaxInflight > 0 {
		l.slots = make(chan struct{}, o.MaxInflight)
	}
	return l
}

// allowsProbe reports whether a request may be sent now that is not essential.
func (l *limits) allowsProbe() bool { return l.rate == nil || l.rate.TryAccept() }

// A transport sends the requests of one feed: within the limits, as long as they
// do not stall. It reports whether the API server can be reached.
type transport struct {
	next     http.RoundTripper
	limits   *limits
	detector *stallDetector // nil detects nothing
	reporter *reporter
}

// RoundTrip holds a slot from here to the end of the response, but for a watch,
// whose response has no end, only to its headers.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if t.limits.rate != nil {
		begin := time.Now()
		if err := t.limits.rate.Wait(ctx); err != nil {
			return nil, err
		}
		t.reporter.countWait(req, time.Since(begin))
	}

	release := func() {}
	if slots := t.limits.slots; slots != nil {
		select {
		case slots <- struct{}{}:
			release = sync.OnceFunc(func() { <-slots })
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}

	begin := time.Now()
	var resp *http.Response
	var err error
	if t.detector != nil {
		resp, err = t.detector.roundTrip(req, t.next)
	} else {
		resp, err = t.next.RoundTrip(req)
	}
	t.reporter.countRequest(req, resp, time.Since(begin))
	if err != nil {
		release()
		if !errors.Is(ctx.Err(), context.Canceled) && err != errStalled { // which the detector has logged
			t.logUnreachable(req, err)
		}
		return nil, unavailableError{err.Error(), true}
	}

	t.reporter.recovered("server", "API server reachable again", "address", req.URL.Host)
	if unavailable(resp.StatusCode) {
		resp.Body.Close()
		release()
		return nil, unavailableError{resp.Status, false}
	}

	if req.URL.Query().Has("watch") {
		release()
	} else {
		resp.Body = &body{resp.Body, release}
	}
	return resp, nil
}

func (t *transport) logUnreachable(req *http.Request, err error) {
	problem := "" // the same for all other errors, which differ between attempts
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		problem = "certificate" // not the same problem as an unreachable server
	}
	t.reporter.problem("server", problem, "API server unreachable, retrying", "address", req.URL.Host, "error", err)
}

// unavailable reports whether a response is from an API server that is starting
// or overloaded, or from a proxy in its place.
func unavailable(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// An unavailableError is the error of a request without a response, or with one that unavailable
// matches. It hides the cause from client-go, which treats some errors as the end of a watch and
// retries others itself.
type unavailableError struct {
	cause  string
	logged bool // for the whole source
}

func (e unavailableError) Error() string { return e.cause }

type body struct {
	io.ReadCloser
	release func()
}

func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
