package apiserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

// timeouts limit how long the API server may stay silent.
//
// A silent API server is either slow, and then a repeated request would only add
// to its load, or it has lost the request, and then waiting is useless. To tell
// them apart a request that has been silent for beforeProbe is compared with a probe:
// a small request for the same resource over a new connection. If the probe is
// answered while the request stays silent, the request has stalled and is sent
// again. A request that stalls although probes are answered may just need longer,
// so each such stall doubles the silence that the feed allows the next request.
type timeouts struct {
	beforeProbe   time.Duration // silence before the first probe
	probe         time.Duration // limit of a probe
	probeInterval time.Duration // wait between two probes
	probeBackoff  time.Duration // limit of the wait after an unanswered probe: it doubles, with a random part
	watch         time.Duration // longest silence of a watch in its list, if probes are answered
	list          time.Duration // longest silence of any other request, whatever the probes return
	silence       time.Duration // longest silence of a watch after its list: bookmarks arrive once a minute
	noBookmarks   time.Duration // the same from a server that sends no bookmarks
	confirm       time.Duration // wait before the list that confirms a suspicious one
	// compare limits the wait for a watch to reach the version of a list that it is compared
	// with. It does not if the API server sends no bookmarks and no other object changes.
	compare time.Duration
}

func defaultTimeouts() timeouts {
	return timeouts{
		beforeProbe: 4 * time.Second,
		probe:       2 * time.Second, probeInterval: 500 * time.Millisecond, probeBackoff: 16 * time.Second,
		// An API server queues a request for up to 15 s, and works on a list for up to 60 s.
		watch: 16 * time.Second, list: time.Minute,
		silence: 90 * time.Second, noBookmarks: 10 * time.Minute, confirm: 3 * time.Second, compare: 2 * time.Minute,
	}
}

// A stallDetector cancels requests of one feed that have stalled. A feed has one
// request at a time.
type stallDetector struct {
	timeouts
	probe   func(req *http.Request, since time.Time) bool // reports whether an equal request is answered
	stalled func(silence time.Duration, retry bool)       // logs a silence

	current        atomic.Pointer[supervisedRequest]
	mu             sync.Mutex
	listSilence    time.Duration // silence allowed before a list has ended, if probes are answered
	watchSilence   time.Duration // silence allowed after that
	sendsBookmarks bool          // some watch has had a bookmark after its list
}

func newStallDetector(t timeouts) *stallDetector {
	return &stallDetector{timeouts: t, listSilence: t.beforeProbe, watchSilence: t.silence}
}

// listEnded marks the end of the list that the current watch began with.
func (d *stallDetector) listEnded() {
	d.mu.Lock()
	d.listSilence = d.beforeProbe
	d.mu.Unlock()
	if r := d.current.Load(); r != nil {
		r.listEnded.Store(true)
	}
}

// A supervisedRequest is a request to the API server, and the body of its response.
type supervisedRequest struct {
	io.ReadCloser
	detector *stallDetector
	request  *http.Request // what a probe repeats: without the trace
	cancel   context.CancelFunc
	watch    bool // the request is a watch
	running  sync.WaitGroup
	conn     atomic.Pointer[conn]

	silentSince atomic.Pointer[time.Time] // the last byte, or the time since which the API server has been waited for
	waiting     atomic.Bool               // for the API server, and not for a connection or the sink
	listEnded   atomic.Bool               // silence is normal: the list that the watch began with has ended
	events      atomic.Bool               // data was received since then
	failed      atomic.Pointer[error]
}

// roundTrip sends req by next and supervises it until its body is closed.
func (d *stallDetector) roundTrip(req *http.Request, next http.RoundTripper) (*http.Response, error) {
	query := req.URL.Query()
	r := &supervisedRequest{detector: d, watch: query.Has("watch")}
	ctx, cancel := context.WithCancel(req.Context())
	r.cancel = cancel
	r.request = req.WithContext(ctx)
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		r.conn.Store(underlying(info.Conn))
		r.heard()
		r.waiting.Store(true)
	}})

	r.heard()
	d.current.Store(r)
	r.running.Go(func() { r.supervise(ctx) })
	resp, err := next.RoundTrip(req.WithContext(traced))
	if err != nil {
		r.end()
		if failed := r.failed.Load(); failed != nil {
			err = *failed
		}
		return nil, err
	}

	r.heard()
	r.waiting.Store(false)
	r.listEnded.Store(r.watch && !query.Has("sendInitialEvents"))
	r.ReadCloser, resp.Body = resp.Body, r
	return resp, nil
}

// heard begins a new silence.
func (r *supervisedRequest) heard() { r.silentSince.Store(new(time.Now())) }

// Read fails with errStalled or errSilent once the request has stalled. From a
// watch that stalls in its list it fails as if the connection had been closed:
// after another error the reflector would send a plain list request.
func (r *supervisedRequest) Read(buf []byte) (int, error) {
	r.heard()
	r.waiting.Store(true)
	n, err := r.ReadCloser.Read(buf)
	r.waiting.Store(false)
	r.heard()

	if n > 0 && r.listEnded.Load() {
		r.events.Store(true)
	}
	if failed := r.failed.Load(); err != nil && failed != nil {
		err = *failed
		if r.watch && !r.listEnded.Load() {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

func (r *supervisedRequest) Close() error {
	err := r.ReadCloser.Close()
	r.end()
	return err
}

// end stops the supervision and returns when it has stopped.
func (r *supervisedRequest) end() {
	r.cancel()
	r.running.Wait()
	r.detector.current.CompareAndSwap(r, nil)
}

var (
	errStalled = errors.New("no response from the API server")
	errSilent  = errors.New("no event or bookmark from the API server")
)

// supervise cancels the request once it has stalled.
func (r *supervisedRequest) supervise(ctx context.Context) {
	for {
		since, listEnded := r.silentSince.Load(), r.listEnded.Load()
		limit := r.detector.beforeProbe
		if listEnded {
			limit = r.detector.allowedSilence()
		}
		silence := time.Since(*since)
		if !r.waiting.Load() {
			silence = 0
		}

		switch {
		case silence < limit:
			if !clock.Sleep(ctx, limit-silence) {
				return
			}
		case listEnded:
			r.detector.afterSilence(r.events.Load())
			r.fail(errSilent, silence)
			return
		case !r.checkByProbe(ctx, since):
			return
		}
	}
}

// checkByProbe sends a probe for a request that has been silent since a time. It returns
// false if ctx is done, or if the request has stalled and is cancelled.
func (r *supervisedRequest) checkByProbe(ctx context.Context, since *time.Time) bool {
	d := r.detector
	answered := d.probe(r.request, *since)
	if ctx.Err() != nil {
		return false
	}
	if r.silentSince.Load() != since || r.listEnded.Load() {
		return true // it has been answered meanwhile
	}

	silence := time.Since(*since)
	if d.hasStalled(silence, answered, r.watch) {
		r.fail(errStalled, silence)
		return false
	}
	if !answered {
		d.stalled(silence, false)
	}
	return clock.Sleep(ctx, d.probeInterval)
}

func (r *supervisedRequest) fail(err error, silence time.Duration) {
	r.failed.Store(&err)
	r.detector.stalled(silence, true)

	// First, since net/http sends a request again by itself whose connection has been closed.
	r.cancel()
	if c := r.conn.Load(); c != nil {
		c.closeIfSilent(*r.silentSince.Load())
	}
}

// hasStalled reports whether a request has been silent for too long. answered is
// the result of the last probe.
func (d *stallDetector) hasStalled(silence time.Duration, answered, watch bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if silence >= d.list {
		return true
	}
	longest := d.list
	if watch {
		longest = d.watch
	}
	if !answered || silence < min(d.listSilence, longest) {
		return false
	}
	d.listSilence = min(2*d.listSilence, d.list)
	return true
}

func (d *stallDetector) allowedSilence() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.watchSilence
}

// bookmarked is called when a bookmark has been received: the server sends them, so a
// watch without any has stalled.
func (d *stallDetector) bookmarked() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sendsBookmarks = true
	d.watchSilence = d.timeouts.silence
}

// afterSilence allows the next watch the usual silence if this one had events or
// bookmarks, and twice as much if the server seems to send no bookmarks.
func (d *stallDetector) afterSilence(events bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if events || d.sendsBookmarks {
		d.watchSilence = d.timeouts.silence
	} else {
		d.watchSilence = min(2*d.watchSilence, d.noBookmarks)
	}
}

// A conn is a connection to the API server that records when it last received data.
type conn struct {
	net.Conn
	last atomic.Int64
}

func (c *conn) Read(buf []byte) (int, error) {
	n, err := c.Conn.Read(buf)
	if n > 0 {
		c.last.Store(int64(clock.Now()))
	}
	return n, err
}

// closeIfSilent closes a connection that has received nothing since a time, for
// any request: HTTP/2 would send the next requests over the same one, and
// takes 45 seconds to notice that it is dead.
func (c *conn) closeIfSilent(since time.Time) {
	if c.last.Load() <= int64(clock.At(since)) {
		c.Conn.Close()
	}
}

// LocalAddr returns an address that underlying finds c by.
func (c *conn) LocalAddr() net.Addr { return connAddr{c.Conn.LocalAddr(), c} }

type connAddr struct {
	net.Addr
	conn *conn
}

// underlying returns the conn below a connection, or nil. Between may be TLS, and with certificates of clients a
// type of client-go's that closes connections whose certificates have changed.
func underlying(c net.Conn) *conn {
	address, _ := c.LocalAddr().(connAddr)
	return address.conn
}
