package index

import (
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/metrics"
)

// A latency observes how long changes of endpoints take to become answers, by the kind
// of their Service.
type latency struct{ clusterIP, selected, unselected *metrics.Histogram }

func newLatency(r *metrics.Registry) *latency {
	kind := func(name string) *metrics.Histogram {
		return r.Histogram("coredns_kubernetes_dns_programming_duration_seconds",
			"Time from a change of endpoints until answers contain it.", 1e-9,
			metrics.Doubled(0.001, 20), "service_kind", name) // 1 ms to 524 s
	}
	return &latency{kind("cluster_ip"), kind("headless_with_selector"), kind("headless_without_selector")}
}

// ObserveLatency has Programmed observe a histogram of r. It must be called before the source
// runs.
func (ix *Index) ObserveLatency(r *metrics.Registry) { ix.latency = newLatency(r) }

// Programmed observes that a change of endpoints is answered.
func (ix *Index) Programmed(service cluster.Key, took time.Duration) {
	e := ix.services.Get([]byte(Label(service.Name) + Label(service.Namespace)))
	if ix.latency == nil || !e.Visible() || e.ExternalName {
		return
	}

	to := ix.latency.clusterIP
	if e.Headless && e.selector {
		to = ix.latency.selected
	} else if e.Headless {
		to = ix.latency.unselected
	}
	to.Add(uint64(max(0, took)), 1) // clocks differ
}
