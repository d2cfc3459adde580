package forward

import (
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A series is what is counted for one upstream.
type series struct {
	registry  *metrics.Registry
	to        string
	requests  *metrics.Counter
	retries   *metrics.Counter
	failed    *metrics.Counter
	unhealthy *metrics.Counter
	reused    [3]*metrics.Counter // by protocol: udp, tcp, tcp-tls
	opened    [3]*metrics.Counter
	discards  map[fault]*metrics.Counter
	codes     [25]atomic.Pointer[codeSeries]
}

// A codeSeries is what is counted by response code, made when the first comes.
type codeSeries struct {
	responses           *metrics.Counter
	duration, forwarded *metrics.Histogram
}

const proxy = "forward" // CoreDNS's proxy_name

func newSeries(r *metrics.Registry, t target) *series {
	to := t.String()
	s := &series{
		registry:  r,
		to:        to,
		requests:  r.Counter("coredns_forward_requests_total", "Counter of requests made per upstream.", "to", to),
		retries:   r.Counter("seamark_forward_retries_total", "Questions sent to an upstream because another, or itself, had not answered in time.", "to", to),
		failed:    r.Counter("seamark_forward_failures_total", "Questions sent to an upstream that it did not answer.", "to", to),
		unhealthy: r.Counter("coredns_proxy_healthcheck_failures_total", "Health checks that failed.", "proxy_name", proxy, "to", to),
	}
	s.discards = map[fault]*metrics.Counter{}
	for _, why := range [...]fault{malformed, unasked, question, foreign, oversize, late, scrubbed} {
		s.discards[why] = r.Counter("seamark_forward_discarded_total", "Packets of an upstream that were ignored, by reason; record is one record of a good reply.",
			"to", to, "reason", string(why))
	}
	for i, proto := range []string{"udp", "tcp", "tcp-tls"} {
		if t.scheme == overHTTPS || (t.scheme == overTLS) != (i == 2) {
			continue
		}
		s.reused[i] = r.Counter("coredns_proxy_conn_cache_hits_total", "Counter of connection cache hits per upstream and protocol.",
			"proxy_name", proxy, "to", to, "proto", proto)
		s.opened[i] = r.Counter("coredns_proxy_conn_cache_misses_total", "Counter of connection cache misses per upstream and protocol.",
			"proxy_name", proxy, "to", to, "proto", proto)
	}
	return s
}

// hit counts a question sent over a socket that was open, miss one that opened
// it.
func (s *series) hit(proto int)  { s.reused[proto].Add(1) }
func (s *series) miss(proto int) { s.opened[proto].Add(1) }

// discard counts a packet, or a record, that was not used.
func (s *series) discard(why fault) { s.discards[why].Add(1) }

// answered counts a reply. Codes beyond those that have a name share one.
func (s *series) answered(code wire.RCode, took time.Duration) {
	last := len(s.codes) - 1
	place := &s.codes[min(int(code), last)]
	c := place.Load()
	if c == nil {
		name := "OTHER"
		if int(code) < last {
			name = code.String()
		}
		c = &codeSeries{
			responses: s.registry.Counter("coredns_forward_responses_total", "Answers of the upstream, by response code.", "to", s.to, "rcode", name),
			duration: s.registry.Histogram("coredns_proxy_request_duration_seconds", "From a question sent to its answer.",
				durations(), "proxy_name", proxy, "to", s.to, "rcode", name),
			forwarded: s.registry.Histogram("coredns_forward_request_duration_seconds", "From a question sent to its answer.",
				durations(), "to", s.to, "rcode", name),
		}
		place.Store(c)
	}
	c.responses.Add(1)
	c.duration.Observe(took.Seconds())
	c.forwarded.Observe(took.Seconds())
}

// durations are the buckets of CoreDNS: a quarter of a millisecond, and twice
// as much fifteen times.
func durations() []float64 {
	bounds := make([]float64, 16)
	for i, b := 0, 0.00025; i < len(bounds); i, b = i+1, b*2 {
		bounds[i] = b
	}
	return bounds
}
