package cmd

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

// tellNumbers writes what dnsmasq logs on SIGUSR1, again and again until ctx ends: a
// line of the cache, and one for each server.
func tellNumbers(ctx context.Context, every time.Duration, reg *metrics.Registry, log *slog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			var text bytes.Buffer
			if err := reg.WriteText(&text); err != nil {
				continue // a buffer has no errors
			}
			n := numbersOf(text.String())
			log.Info("statistics", "answered_from_cache", n.total("coredns_cache_hits_total"), "forwarded", n.total("coredns_forward_requests_total"),
				"cache_entries", n.total("coredns_cache_entries"), "evicted", n.total("coredns_cache_evictions_total"))
			for _, server := range slices.Sorted(maps.Keys(n["coredns_forward_requests_total"])) {
				log.Info("statistics of a server", "server", server, "queries_sent", n["coredns_forward_requests_total"][server],
					"unanswered", n["seamark_forward_failures_total"][server])
			}
		case <-ctx.Done():
			return
		}
	}
}

// numbers are the values of metrics by name and by the label to, "" if there is none.
type numbers map[string]map[string]uint64

func (n numbers) total(name string) (sum uint64) {
	for _, value := range n[name] {
		sum += value
	}
	return sum
}

// numbersOf reads the Prometheus text format, as far as it tells whole numbers.
func numbersOf(text string) numbers {
	all := numbers{}
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
		if all[name] == nil {
			all[name] = map[string]uint64{}
		}
		all[name][to] += value
	}
	return all
}
