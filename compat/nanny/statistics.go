package nanny

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/metrics"
)

// LogStatistics logs at an interval the statistics that dnsmasq logs on SIGUSR1,
// until ctx ends: a line about the cache and one about each upstream.
func LogStatistics(ctx context.Context, interval time.Duration, reg *metrics.Registry, log *slog.Logger) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			var text bytes.Buffer
			if err := reg.WriteText(&text); err != nil {
				continue // cannot happen: writing to a buffer does not fail
			}
			parseMetrics(text.String()).log(log)
		case <-ctx.Done():
			return
		}
	}
}

// values maps the name of a metric and its label "to" ("" if absent) to its value.
type values map[string]map[string]uint64

func (v values) log(log *slog.Logger) {
	sent := v["coredns_forward_requests_total"]
	log.Info("Cache statistics",
		"cache_hits", v.total("coredns_cache_hits_total"), "forwarded", v.total("coredns_forward_requests_total"),
		"cache_entries", v.total("coredns_cache_entries"),
		"cache_evictions", v.total("coredns_cache_evictions_total"))
	for _, upstream := range slices.Sorted(maps.Keys(sent)) {
		log.Info("Upstream statistics", "upstream", upstream, "queries_sent", sent[upstream],
			"unanswered", v["seamark_forward_failures_total"][upstream])
	}
}

func (v values) total(name string) (sum uint64) {
	for _, value := range v[name] {
		sum += value
	}
	return sum
}

// parseMetrics parses the integers in a Prometheus text.
func parseMetrics(text string) values {
	v := values{}
	for line := range strings.Lines(text) {
		series, last, ok := strings.Cut(strings.TrimSpace(line), " ")
		if i := strings.LastIndexByte(line, '}'); i >= 0 {
			series, last, ok = line[:i], strings.TrimSpace(line[i+1:]), true
		}
		value, err := strconv.ParseUint(last, 10, 64)
		if !ok || err != nil || strings.HasPrefix(line, "#") {
			continue
		}

		name, labels, _ := strings.Cut(series, "{")
		_, to, _ := strings.Cut(labels, `to="`)
		to, _, _ = strings.Cut(to, `"`)
		if v[name] == nil {
			v[name] = map[string]uint64{}
		}
		v[name][to] += value
	}
	return v
}
