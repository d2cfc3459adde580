package forward

import (
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// upstreamMetrics are the metrics of one upstream.
type upstreamMetrics struct {
	registry  *metrics.Registry
	to        string
	requests  *metrics.Counter
	retries   *metrics.Counter
	failed    *metrics.Counter
	unhealthy *metrics.Counter
	wentDown  *metrics.Counter
	reused    [3]*metrics.Counter // by protocol: udp, tcp, tcp-tls
	opened    [3]*metrics.Counter
	discards  map[discardReason]*metrics.Counter
	codes     [25]atomic.Pointer[rcodeMetrics]
}

// rcodeMetrics are the metrics of one response code, created with the first
// reply that has it.
type rcodeMetrics struct {
	responses           *metrics.Counter
	duration, forwarded *metrics.Histogram
}

const proxyName = "forward" // the label proxy_name, as in CoreDNS

func newUpstreamMetrics(r *metrics.Registry, t target) *upstreamMetrics {
	to := t.String()
	s := &upstreamMetrics{
		registry:  r,
		to:        to,
		requests:  r.Counter("coredns_forward_requests_total", "Counter of requests made per upstream.", "to", to),
		retries:   r.Counter("seamark_forward_retries_total", "Queries sent to the upstream because this or another upstream had not answered in time.", "to", to),
		failed:    r.Counter("seamark_forward_failures_total", "Queries sent to the upstream that it did not answer.", "to", to),
		unhealthy: r.Counter("coredns_proxy_healthcheck_failures_total", "Failed health checks.", "proxy_name", proxyName, "to", to),
	}
	s.wentDown = r.Counter("seamark_forward_upstream_down_total", "How often the upstream went down.", "to", to)
	s.discards = map[discardReason]*metrics.Counter{}
	for _, why := range [...]discardReason{malformed, unknownID, wrongQuestion, unrelated, oversize, late, extraRecord} {
		s.discards[why] = r.Counter("seamark_forward_discarded_total", "Packets from the upstream that were ignored, by reason; reason record counts replies with dropped records.",
			"to", to, "reason", string(why))
	}
	for i, proto := range []string{"udp", "tcp", "tcp-tls"} {
		if t.scheme == schemeHTTPS || (t.scheme == schemeTLS) != (i == 2) {
			continue
		}
		s.reused[i] = r.Counter("coredns_proxy_conn_cache_hits_total", "Counter of connection cache hits per upstream and protocol.",
			"proxy_name", proxyName, "to", to, "proto", proto)
		s.opened[i] = r.Counter("coredns_proxy_conn_cache_misses_total", "Counter of connection cache misses per upstream and protocol.",
			"proxy_name", proxyName, "to", to, "proto", proto)
	}
	return s
}

// hit counts a query sent over an open socket or connection, miss one for which
// it was opened.
func (s *upstreamMetrics) hit(proto int)  { s.reused[proto].Add(1) }
func (s *upstreamMetrics) miss(proto int) { s.opened[proto].Add(1) }

// discard counts a packet or record that was not used.
func (s *upstreamMetrics) discard(why discardReason) { s.discards[why].Add(1) }

// countReply counts a reply. Response codes without a name share one series.
func (s *upstreamMetrics) countReply(code wire.RCode, took time.Duration) {
	last := len(s.codes) - 1
	place := &s.codes[min(int(code), last)]
	c := place.Load()
	if c == nil {
		name := "OTHER"
		if int(code) < last {
			name = code.String()
		}
		c = &rcodeMetrics{
			responses: s.registry.Counter("coredns_forward_responses_total", "Replies of the upstream, by response code.", "to", s.to, "rcode", name),
			duration: s.registry.Histogram("coredns_proxy_request_duration_seconds", "Time from a query to its reply.",
				durations(), "proxy_name", proxyName, "to", s.to, "rcode", name),
			forwarded: s.registry.Histogram("coredns_forward_request_duration_seconds", "Time from a query to its reply.",
				durations(), "to", s.to, "rcode", name),
		}
		place.Store(c)
	}
	c.responses.Add(1)
	c.duration.Observe(took.Seconds())
	c.forwarded.Observe(took.Seconds())
}

// durations returns CoreDNS's bucket bounds: a quarter of a millisecond, doubled
// fifteen times.
func durations() []float64 {
	bounds := make([]float64, 16)
	for i, b := 0, 0.00025; i < len(bounds); i, b = i+1, b*2 {
		bounds[i] = b
	}
	return bounds
}
