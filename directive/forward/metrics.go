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
	proxyName string
	to        string // the label
	requests  *metrics.Counter
	retries   *metrics.Counter
	failed    *metrics.Counter
	unhealthy *metrics.Counter
	wentDown  *metrics.Counter
	reused    [4]*metrics.Counter // queries over an open socket or connection, by protocol: udp, tcp, tcp-tls, quic
	opened    [4]*metrics.Counter // those for which one is opened
	discards  map[fault]*metrics.Counter
	codes     [25]atomic.Pointer[rcodeMetrics]
}

// rcodeMetrics are the metrics of one response code, created with the first
// reply that has it.
type rcodeMetrics struct {
	responses *metrics.Counter
	durations []*metrics.Histogram
}

func newUpstreamMetrics(r *metrics.Registry, id upstreamID) *upstreamMetrics {
	to := id.String()
	proxyName := "forward" // the directive, as in CoreDNS
	if id.scheme == schemeGRPC {
		proxyName = "grpc"
	}
	counter := func(name, help string, labels ...string) *metrics.Counter {
		return r.Counter(name, help, append(labels, "to", to)...)
	}

	m := &upstreamMetrics{
		registry:  r,
		proxyName: proxyName,
		to:        to,
		requests:  counter("coredns_"+proxyName+"_requests_total", "Counter of requests made per upstream."),
		retries: counter("seamark_forward_retries_total",
			"Queries sent to the upstream because this or another upstream had not answered in time."),
		failed: counter("seamark_forward_failures_total",
			"Queries sent to the upstream that it did not answer."),
		unhealthy: counter("coredns_proxy_healthcheck_failures_total",
			"Failed health checks.", "proxy_name", proxyName),
		wentDown: counter("seamark_forward_upstream_down_total", "How often the upstream went down."),
		discards: map[fault]*metrics.Counter{},
	}
	for _, reason := range [...]fault{
		malformed, unknownID, wrongQuestion, wrongCase, unrelated, oversize, late, extraRecord,
	} {
		m.discards[reason] = r.Counter("seamark_forward_discarded_total",
			"Packets from the upstream that were ignored, by reason; "+
				"reason record counts replies with dropped records.",
			"to", to, "reason", string(reason))
	}

	scheme := [...]string{schemeDNS, schemeDNS, schemeTLS, schemeQUIC}
	for i, proto := range []string{"udp", "tcp", "tcp-tls", "quic"} {
		if id.scheme != scheme[i] {
			continue
		}
		labels := []string{"proxy_name", proxyName, "to", to, "proto", proto}
		m.reused[i] = r.Counter("coredns_proxy_conn_cache_hits_total",
			"Counter of connection cache hits per upstream and protocol.", labels...)
		m.opened[i] = r.Counter("coredns_proxy_conn_cache_misses_total",
			"Counter of connection cache misses per upstream and protocol.", labels...)
	}
	return m
}

// discard counts a packet or record that was not used.
func (m *upstreamMetrics) discard(reason fault) { m.discards[reason].Add(1) }

// countReply counts a reply. Response codes without a name share one series.
func (m *upstreamMetrics) countReply(code wire.RCode, took time.Duration) {
	last := len(m.codes) - 1
	counters := &m.codes[min(int(code), last)]
	c := counters.Load()
	if c == nil {
		name := "OTHER"
		if int(code) < last {
			name = code.String()
		}
		c = m.newRCodeMetrics(name)
		counters.Store(c)
	}

	c.responses.Add(1)
	for _, h := range c.durations {
		h.Add(uint64(took), 1)
	}
}

func (m *upstreamMetrics) newRCodeMetrics(rcode string) *rcodeMetrics {
	histogram := func(metric string, labels ...string) *metrics.Histogram {
		return m.registry.Histogram(metric, "Time from a query to its reply.", 1e-9,
			metrics.Doubled(0.00025, 16), labels...) // CoreDNS's buckets: 0.25ms, doubled up to 8s
	}

	c := &rcodeMetrics{responses: m.registry.Counter("coredns_"+m.proxyName+"_responses_total",
		"Replies of the upstream, by response code.", "to", m.to, "rcode", rcode)}
	if m.proxyName == "grpc" {
		c.durations = []*metrics.Histogram{histogram("coredns_grpc_request_duration_seconds", "to", m.to)}
		return c
	}
	c.durations = []*metrics.Histogram{
		histogram("coredns_proxy_request_duration_seconds", "proxy_name", m.proxyName, "to", m.to, "rcode", rcode),
		histogram("coredns_forward_request_duration_seconds", "to", m.to, "rcode", rcode),
	}
	return c
}
