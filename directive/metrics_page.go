package directive

import (
	"net/http"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/status"
)

// metricsPage returns the page of a registry's metrics, for prometheus and skydns_metrics.
func metricsPage(r *metrics.Registry) http.Handler {
	r.Counter("coredns_panics_total", "Panics of handlers; each was answered with SERVFAIL.")
	return status.Metrics(r)
}
