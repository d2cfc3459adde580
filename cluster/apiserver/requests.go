package apiserver

import (
	"net/http"
	"strconv"
	"time"
)

// client-go counts its requests in global variables, which two servers in one
// process would share. These are the same series, counted in the transport.

// seconds returns the Prometheus client's default buckets, which CoreDNS uses here.
func seconds() []float64 {
	return []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// countWait records how long a request waited for the limit of requests per second.
func (r *reporter) countWait(req *http.Request, took time.Duration) {
	if r.metrics == nil {
		return
	}
	r.metrics.Histogram("coredns_kubernetes_rest_client_rate_limiter_duration_seconds",
		"Client side rate limiter latency in seconds. Broken down by verb and host.",
		1e-9, seconds(), "verb", req.Method, "host", req.URL.Host).Add(uint64(took), 1)
}

// countRequest counts a request when its response begins, or when it fails: resp is nil
// then.
func (r *reporter) countRequest(req *http.Request, resp *http.Response, took time.Duration) {
	if r.metrics == nil {
		return
	}
	code := "<error>"
	if resp != nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	r.metrics.Histogram("coredns_kubernetes_rest_client_request_duration_seconds",
		"Request latency in seconds. Broken down by verb and host.",
		1e-9, seconds(), "verb", req.Method, "host", req.URL.Host).Add(uint64(took), 1)
	r.metrics.Counter("coredns_kubernetes_rest_client_requests_total",
		"Number of HTTP requests, partitioned by status code, method, and host.",
		"method", req.Method, "code", code, "host", req.URL.Host).Add(1)
}
