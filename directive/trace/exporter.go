package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/redact"
)

const (
	// timeout bounds each request to the collector.
	timeout = 5 * time.Second
	// stopTimeout bounds how long Stop sends spans that wait.
	stopTimeout = 2 * time.Second
	// logInterval is the least time between two log messages.
	logInterval = 10 * time.Second
	// maxResponse is how many bytes of a response are read at most.
	maxResponse = 64 << 10
)

var errFull = errors.New("the collector is too slow: too many spans wait")

// An exporter sends spans to a collector. It survives reloads.
type exporter struct {
	options
	client   *http.Client
	endpoint string // the URL without a password
	log      *slog.Logger
	metrics  *metrics.Registry
	sent     *metrics.Counter
	lost     *metrics.Counter

	first, full follow.Signal      // there is a span; there is a batch
	task        *follow.Task       // run
	requests    context.Context    // of the requests to the collector
	abort       context.CancelFunc // ends requests

	mu      sync.Mutex
	waiting []span

	lostMu    sync.Mutex
	lostCount int       // since logged
	logged    time.Time // the last log message
}

func newExporter(o options, b *config.Block) *exporter {
	endpoint := redact.URL(o.url)
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: b.Dial, ForceAttemptHTTP2: true,
		MaxIdleConns: 1, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: maxResponse,
	}
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	e := &exporter{
		options: o, endpoint: endpoint, log: b.Log, metrics: b.Metrics,
		client: &http.Client{Transport: transport, CheckRedirect: noRedirect},
		sent: b.Metrics.Counter("seamark_trace_spans_total",
			"Spans that a collector of traces accepted.", "endpoint", endpoint),
		lost: b.Metrics.Counter("seamark_trace_lost_spans_total",
			"Spans that no collector of traces got.", "endpoint", endpoint),
		first: follow.NewSignal(), full: follow.NewSignal(),
	}

	e.requests, e.abort = context.WithCancel(context.Background())
	e.task = follow.Go(e.run)
	return e
}

// Stop implements config.Stopper. It sends the spans that wait.
func (e *exporter) Stop() {
	timer := time.AfterFunc(stopTimeout, e.abort)
	e.task.Stop()
	timer.Stop()
	e.abort()
	e.client.CloseIdleConnections()
}

// send queues spans. It does not block: without room the oldest spans are lost.
func (e *exporter) send(spans []span) {
	e.mu.Lock()
	before := len(e.waiting)
	e.waiting = append(e.waiting, spans...)
	lost := max(0, len(e.waiting)-e.maxBacklog)
	e.waiting = e.waiting[lost:]
	after := len(e.waiting)
	e.mu.Unlock()

	if lost > 0 {
		e.addLost(lost, errFull)
	}
	if before == 0 {
		e.first.Send()
	}
	if after >= e.batch {
		e.full.Send()
	}
}

// take returns the oldest spans, at most a batch.
func (e *exporter) take() []span {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(e.waiting), e.batch)
	spans := e.waiting[:n:n]
	if e.waiting = e.waiting[n:]; len(e.waiting) == 0 {
		e.waiting = nil
	}
	return spans
}

// run sends spans until ctx ends, and then the waiting spans.
func (e *exporter) run(ctx context.Context) {
	for ended := false; !ended; ended = ctx.Err() != nil {
		select {
		case <-e.first:
		case <-ctx.Done():
		}

		select {
		case <-time.After(e.interval):
		case <-e.full:
		case <-ctx.Done():
		}

		for spans := e.take(); len(spans) > 0; spans = e.take() {
			e.post(spans)
		}
	}
}

// post sends a batch.
func (e *exporter) post(spans []span) {
	rejected, reason, err := e.request(spans)
	if err != nil {
		rejected = len(spans)
		e.metrics.Counter("seamark_trace_failed_requests_total", "Requests to a collector of traces that failed.",
			"endpoint", e.endpoint, "reason", reason).Add(1)
	}
	e.sent.Add(uint64(len(spans) - rejected))
	if rejected > 0 {
		e.addLost(rejected, err)
	}
}

// request sends a request, and returns how many of its spans the collector rejected. The
// reason of an error is an HTTP status, or "connection".
func (e *exporter) request(spans []span) (rejected int, reason string, err error) {
	var body []byte
	kind := "application/x-protobuf"
	if e.kind == otlp {
		body = encodeOTLP(e.service, spans)
	} else {
		kind = "application/json"
		if body, err = encodeZipkin(e.service, spans); err != nil {
			return 0, "encoding", err
		}
	}

	ctx, cancel := context.WithTimeout(e.requests, timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return 0, "connection", err
	}
	r.Header.Set("Content-Type", kind)
	r.Header.Set("User-Agent", "seamark")

	response, err := e.client.Do(r)
	if err != nil {
		return 0, "connection", redact.Error(err)
	}
	defer response.Body.Close()

	answer, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return 0, strconv.Itoa(response.StatusCode), fmt.Errorf("HTTP status %s", response.Status)
	}
	if err == nil && e.kind == otlp {
		rejected = min(max(0, rejectedOTLP(answer)), len(spans))
	}
	return rejected, "", nil
}

var errRejected = errors.New("the collector rejected some spans of a request")

// addLost counts and logs lost spans.
func (e *exporter) addLost(n int, err error) {
	if err == nil {
		err = errRejected
	}
	e.lost.Add(uint64(n))
	e.lostMu.Lock()
	defer e.lostMu.Unlock()
	e.lostCount += n
	if now := time.Now(); now.Sub(e.logged) >= logInterval {
		e.log.Warn("trace: Lost spans", "url", e.endpoint, "count", e.lostCount, "error", err)
		e.lostCount, e.logged = 0, now
	}
}
