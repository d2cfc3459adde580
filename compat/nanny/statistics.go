package nanny

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
)

// LogStatistics logs at an interval the statistics that dnsmasq logs on SIGUSR1,
// until ctx ends: a line about the cache and one about each upstream.
func LogStatistics(ctx context.Context, interval time.Duration, reg *metrics.Registry, log *slog.Logger) {
	for range clock.Ticks(ctx, interval) {
		logStatistics(reg, log)
	}
}

const (
	hits      = "coredns_cache_hits_total"
	entries   = "coredns_cache_entries"
	evictions = "coredns_cache_evictions_total"
	sent      = "coredns_forward_requests_total"
	failed    = "seamark_forward_failures_total"
)

func isUsed(family string) bool {
	return slices.Contains([]string{hits, entries, evictions, sent, failed}, family)
}

func logStatistics(reg *metrics.Registry, log *slog.Logger) {
	totals, byUpstream := map[string]uint64{}, map[string]map[string]uint64{sent: {}, failed: {}}
	for series, value := range reg.Values(isUsed) {
		family, labels := metrics.ParseSeries(series)
		totals[family] += uint64(value)
		if upstreams := byUpstream[family]; upstreams != nil {
			upstreams[labels["to"]] += uint64(value)
		}
	}

	log.Info("Cache statistics", "cache_hits", totals[hits], "forwarded", totals[sent],
		"cache_entries", totals[entries], "cache_evictions", totals[evictions])
	for _, upstream := range slices.Sorted(maps.Keys(byUpstream[sent])) {
		log.Info("Upstream statistics", "upstream", upstream, "queries_sent", byUpstream[sent][upstream],
			"unanswered", byUpstream[failed][upstream])
	}
}
