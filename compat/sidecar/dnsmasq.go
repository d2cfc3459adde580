package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/operate/query"
)

// counters are dnsmasq's counters since its start, or since it last read its hosts
// files. Each is the TXT record of NAME.bind in class CHAOS.
var counters = [...]struct{ name, help string }{
	{"hits", "Queries that dnsmasq answered from its cache or its hosts files."},
	{"misses", "Queries that dnsmasq forwarded."},
	{"evictions", "Cache entries that dnsmasq evicted before they expired."},
	{"insertions", "Entries that dnsmasq inserted into its cache."},
}

// sizeName is the name of the capacity of dnsmasq's cache.
const sizeName = "cachesize"

// statistics holds dnsmasq's counters. One goroutine calls poll.
type statistics struct {
	server   string
	log      *slog.Logger
	counters [len(counters)]*metrics.Counter
	last     [len(counters)]uint64 // of the last successful poll
	size     atomic.Uint64
	errors   *metrics.Counter
	result   lastResult
}

func newStatistics(server string, r *metrics.Registry, namespace string, log *slog.Logger) *statistics {
	s := &statistics{server: server, log: log.With("address", server)}
	for i, c := range counters {
		s.counters[i] = r.Counter(metricName(namespace, "dnsmasq", c.name), c.help)
	}
	r.Gauge(metricName(namespace, "dnsmasq", "max_size"), "Capacity of dnsmasq's cache in entries.",
		func() float64 { return float64(s.size.Load()) })
	s.errors = r.Counter(metricName(namespace, "dnsmasq", "errors"), "Failed polls of dnsmasq's statistics.")
	return s
}

// poll queries all counters. It updates the metrics only if every query succeeds, so
// that they belong together.
func (s *statistics) poll(ctx context.Context) {
	var now [len(counters)]uint64
	size, err := s.query(ctx, sizeName)
	for i := range now {
		if err == nil {
			now[i], err = s.query(ctx, counters[i].name)
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the sidecar ends: no result
	}

	if err != nil {
		s.errors.Add(1)
		s.log.Log(ctx, s.result.level(false, slog.LevelWarn), "Polling dnsmasq's statistics failed", "error", err)
		return
	}
	s.size.Store(size)
	for i, n := range now {
		s.counters[i].Add(increase(s.last[i], n))
	}
	s.last = now
	s.log.Log(ctx, s.result.level(true, slog.LevelInfo), "Polled dnsmasq's statistics",
		"cache_size", size, "cache_hits", now[0], "cache_misses", now[1])
}

// increase returns the increase of a counter between two polls. A lower value
// means that dnsmasq reset the counter: it restarted or, which resets only some
// counters, read its hosts files again.
func increase(last, now uint64) uint64 {
	if now < last {
		return now
	}
	return now - last
}

// query returns the number in the TXT record of label.bind.
func (s *statistics) query(ctx context.Context, label string) (uint64, error) {
	name := label + ".bind."
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeTXT)
	m.Question[0].Qclass = dns.ClassCHAOS
	m.RecursionDesired = false
	reply, err := query.Exchange(ctx, s.server, m)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}

	for _, rr := range reply.Answer {
		txt, ok := rr.(*dns.TXT)
		if !ok || !strings.EqualFold(txt.Hdr.Name, name) {
			continue
		}
		n, err := strconv.ParseUint(strings.Join(txt.Txt, ""), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: want a number: %w", name, err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("%s: %s replied %s without a TXT record: check that it is dnsmasq without --no-ident",
		name, s.server, query.RCode(reply))
}
