package apiserver

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// A prober sends the probes for one resource. The feeds of a resource in several
// namespaces share their results.
type prober struct {
	busy     chan struct{} // has an element during a probe; guards the fields below
	began    time.Time
	ended    time.Time
	answered bool // result of the last probe
}

// prober returns the resource's prober.
func (c *client) prober(resource string) *prober {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.probers[resource]
	if p == nil {
		p = &prober{busy: make(chan struct{}, 1)}
		c.probers[resource] = p
	}
	return p
}

// probe reports whether the API server answers a request that resembles req at
// present, over a new connection. It may use the result of another feed's probe
// that began after since. It reports that the API server does not while no probe may
// be sent. A probe takes none of the slots of MaxInflight, which stalled requests may hold.
func (c *client) probe(p *prober, req *http.Request, since time.Time, t timeouts) bool {
	select {
	case p.busy <- struct{}{}:
	case <-req.Context().Done():
		return false
	}
	defer func() { <-p.busy }()
	if p.began.After(since) && time.Since(p.ended) < t.probeInterval {
		return p.answered
	}
	if !c.probeBackoff.begin(t) || !c.limits.allowsProbe() {
		return false
	}
	p.began = time.Now()
	p.answered = c.sendProbe(req, t.probe)
	p.ended = time.Now()
	c.probeBackoff.end(p.answered, t)
	return p.answered
}

// A probeBackoff spaces the probes of all resources while they are not answered: each costs
// an overloaded API server a TLS handshake.
type probeBackoff struct {
	mu    sync.Mutex
	next  time.Time     // no probe is sent before it
	limit time.Duration // of the wait after the last probe; 0 if it was answered
}

// begin reports whether a probe may be sent now, and not during another one.
func (b *probeBackoff) begin(t timeouts) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Before(b.next) {
		return false
	}
	b.next = now.Add(t.probe)
	return true
}

// end is called with the result of a probe.
func (b *probeBackoff) end(answered bool, t timeouts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = time.Now()
	if answered {
		b.limit = 0
		return
	}
	b.limit = min(max(2*b.limit, 2*t.probeInterval), t.probeBackoff)
	b.next = b.next.Add(b.limit/2 + rand.N(b.limit/2))
}

// sendProbe repeats a request in short: a list with one object, or a watch, whose
// first event it waits for only if the watch begins with a list. An error that a
// proxy may have sent in the API server's place does not count as an answer.
func (c *client) sendProbe(req *http.Request, limit time.Duration) bool {
	c.mu.Lock()
	probes := c.probes
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(req.Context(), limit)
	defer cancel()
	defer utilnet.CloseIdleConnectionsFor(probes.Transport) // not probes, which client-go has wrapped

	req = req.Clone(ctx)
	req.Close = true // the next probe takes another connection
	query := req.URL.Query()
	watch, list := query.Has("watch"), query.Has("sendInitialEvents")
	if !watch {
		query.Del("resourceVersion") // with "0" the API server would ignore the limit
		query.Del("resourceVersionMatch")
		query.Del("continue")
		query.Set("limit", "1")
		req.URL.RawQuery = query.Encode()
	}

	resp, err := probes.Transport.RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	switch {
	case unavailable(resp.StatusCode):
		return false
	case resp.StatusCode != http.StatusOK || watch && !list:
		return true
	case watch:
		_, err = io.ReadFull(resp.Body, make([]byte, 1))
	default:
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	}
	return err == nil
}
