package apiserver

import (
	"context"
	"crypto/tls"
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
	probeBackoff  time.Duration // limit of the wait after an unanswered probe, which doubles and has a random part
	watch         time.Duration // longest silence of a watch before its list has ended, if probes are answered
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
		beforeProbe: 4 * time.Second, probe: 2 * time.Second, probeInterval: 500 * time.Millisecond, probeBackoff: 16 * time.Second,
		watch: 16 * time.Second, list: time.Minute, // an API server queues a request for up to 15 s, and works on a list for up to 60 s
		silence: 90 * time.Second, noBookmarks: 10 * time.Minute, confirm: 3 * time.Second, compare: 2 * time.Minute,
	}
}

// A stallDetector cancels requests of one feed that have stalled. A feed has one
// request at a time.
type stallDetector struct {
	timeouts
	probe   func(req *http.Request, since time.Time) bool
	stalled func(silence time.Duration, retry bool)

	current        atomic.Pointer[exchange]
	mu             sync.Mutex
	listSilence    time.Duration // silence allowed before a list has ended, if probes are answered
	watchSilence   time.Duration // silence allowed after that
	sendsBookmarks bool          // some watch has had a bookmark after its list
}

func newStallDetector(t timeouts) *stallDetector {
	return &stallDetector{timeouts: t, listSilence: t.beforeProbe, watchSilence: t.silence}
}

// listed marks the end of the list that the current watch began with.
func (d *stallDetector) listEnded() {
	d.mu.Lock()
	d.listSilence = d.beforeProbe
	d.mu.Unlock()
	if x := d.current.Load(); x != nil {
		x.listEnded.Store(true)
	}
}

// An exchange is a request and its response, which it is the body of.
type exchange struct {
	io.ReadCloser
	detector *stallDetector
	request  *http.Request // what a probe repeats: without the trace of this exchange
	cancel   context.CancelFunc
	watch    bool // the request is a watch
	running  sync.WaitGroup
	conn     atomic.Pointer[conn]

	last      atomic.Pointer[time.Time] // when the connection was opened, a byte was received, or one began to be waited for
	waiting   atomic.Bool               // for the API server, and not for a connection or the sink
	listEnded atomic.Bool               // silence is normal: the list that the watch began with has ended
	events    atomic.Bool               // data was received since then
	failed    atomic.Pointer[error]
}

// roundTrip sends req by next and supervises it until its body is closed.
func (d *stallDetector) roundTrip(req *http.Request, next http.RoundTripper) (*http.Response, error) {
	query := req.URL.Query()
	x := &exchange{detector: d, watch: query.Has("watch")}
	ctx, cancel := context.WithCancel(req.Context())
	x.cancel = cancel
	x.request = req.WithContext(ctx)
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		x.conn.Store(underlying(info.Conn))
		x.received()
		x.waiting.Store(true)
	}})
	x.received()
	d.current.Store(x)
	x.running.Go(func() { x.supervise(ctx) })
	resp, err := next.RoundTrip(req.WithContext(traced))
	if err != nil {
		x.end()
		if failed := x.failed.Load(); failed != nil {
			err = *failed
		}
		return nil, err
	}
	x.received()
	x.waiting.Store(false)
	x.listEnded.Store(x.watch && !query.Has("sendInitialEvents"))
	x.ReadCloser, resp.Body = resp.Body, x
	return resp, nil
}

func (x *exchange) received() {
	now := time.Now()
	x.last.Store(&now)
}

// Read fails with errStalled or errSilent once the request has stalled. From a
// watch that stalls in its list it fails as if the connection had been closed:
// after another error the reflector would send a plain list request.
func (x *exchange) Read(buf []byte) (int, error) {
	x.received()
	x.waiting.Store(true)
	n, err := x.ReadCloser.Read(buf)
	x.waiting.Store(false)
	x.received()
	if n > 0 && x.listEnded.Load() {
		x.events.Store(true)
	}
	if failed := x.failed.Load(); err != nil && failed != nil {
		err = *failed
		if x.watch && !x.listEnded.Load() {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

func (x *exchange) Close() error {
	err := x.ReadCloser.Close()
	x.end()
	return err
}

// end stops the supervision and returns when it has stopped.
func (x *exchange) end() {
	x.cancel()
	x.running.Wait()
	x.detector.current.CompareAndSwap(x, nil)
}

var (
	errStalled = errors.New("no response from the API server")
	errSilent  = errors.New("no event or bookmark from the API server")
)

// supervise cancels the request once it has stalled.
func (x *exchange) supervise(ctx context.Context) {
	d := x.detector
	for {
		last := x.last.Load()
		silence := time.Since(*last)
		limit := d.beforeProbe
		listed := x.listEnded.Load()
		if listed {
			limit = d.allowedSilence()
		}
		switch {
		case !x.waiting.Load():
			silence = 0
			fallthrough
		case silence < limit:
			if !pause(ctx, limit-silence) {
				return
			}
			continue
		case listed:
			d.afterSilence(x.events.Load())
			x.fail(errSilent, silence)
			return
		}
		answered := d.probe(x.request, *last)
		if ctx.Err() != nil {
			return
		}
		if x.last.Load() != last || x.listEnded.Load() {
			continue
		}
		if silence = time.Since(*last); d.hasStalled(silence, answered, x.watch) {
			x.fail(errStalled, silence)
			return
		}
		if !answered {
			d.stalled(silence, false)
		}
		if !pause(ctx, d.probeInterval) {
			return
		}
	}
}

// pause waits for d and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (x *exchange) fail(err error, silence time.Duration) {
	x.failed.Store(&err)
	x.detector.stalled(silence, true)
	if c := x.conn.Load(); c != nil {
		c.closeIfSilent(*x.last.Load())
	}
	x.cancel()
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

// underlying returns the conn below TLS, or nil.
func underlying(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	under, _ := c.(*conn)
	return under
}
