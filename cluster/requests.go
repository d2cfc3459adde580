package cluster

import (
	"net/http"
	"strconv"
	"time"
)

// What client-go measures of its requests goes to variables of the process,
// which two servers in it would share. These are the same series, counted in
// our transport.

// seconds are the Prometheus client's usual buckets, which CoreDNS has here.
func seconds() []float64 {
	return []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// paced counts how long a request had to wait for the limits that the options
// set.
func (s *state) paced(req *http.Request, took time.Duration) {
	if s.metrics == nil {
		return
	}
	s.metrics.Histogram("coredns_kubernetes_rest_client_rate_limiter_duration_seconds", "Client side rate limiter latency in seconds. Broken down by verb and host.",
		seconds(), "verb", req.Method, "host", req.URL.Host).Observe(took.Seconds())
}

// answered counts a request whose answer has begun, or has failed to: resp is
// nil then. A watch goes on long after that.
func (s *state) answered(req *http.Request, resp *http.Response, took time.Duration) {
	if s.metrics == nil {
		return
	}
	code := "<error>"
	if resp != nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	s.metrics.Histogram("coredns_kubernetes_rest_client_request_duration_seconds", "Request latency in seconds. Broken down by verb and host.",
		seconds(), "verb", req.Method, "host", req.URL.Host).Observe(took.Seconds())
	s.metrics.Counter("coredns_kubernetes_rest_client_requests_total", "Number of HTTP requests, partitioned by status code, method, and host.",
		"method", req.Method, "code", code, "host", req.URL.Host).Add(1)
}
