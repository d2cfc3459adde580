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
)

// counted is what dnsmasq counts since it started, or since it last read its hosts
// files: each is a name of class CHAOS, NAME.bind, whose TXT record is a number.
var counted = [...]struct{ name, help string }{
	{"hits", "Answers that dnsmasq gave by itself, from its cache or from hosts."},
	{"misses", "Questions that dnsmasq forwarded."},
	{"evictions", "Entries that dnsmasq took out of its cache before their time."},
	{"insertions", "Entries that dnsmasq put into its cache."},
}

// sizeName is the number of entries that dnsmasq's cache may have.
const sizeName = "cachesize"

// statistics is what dnsmasq says of itself. One goroutine calls poll.
type statistics struct {
	server   string
	log      *slog.Logger
	counters [len(counted)]*metrics.Counter
	last     [len(counted)]uint64 // what dnsmasq said in the last round that succeeded
	size     atomic.Uint64
	errors   *metrics.Counter
	state    state
}

func newStatistics(server string, r *metrics.Registry, namespace string, log *slog.Logger) *statistics {
	s := &statistics{server: server, log: log.With("server", server)}
	for i, c := range counted {
		s.counters[i] = r.Counter(full(namespace, "dnsmasq", c.name), c.help)
	}
	r.Gauge(full(namespace, "dnsmasq", "max_size"), "Entries that dnsmasq's cache may have.", func() float64 { return float64(s.size.Load()) })
	s.errors = r.Counter(full(namespace, "dnsmasq", "errors"), "Rounds of questions for dnsmasq's statistics that failed.")
	return s
}

// poll asks one round of questions. It counts only if each has an answer, so that
// the numbers are of about one moment.
func (s *statistics) poll(ctx context.Context) {
	var now [len(counted)]uint64
	size, err := s.ask(ctx, sizeName)
	for i := range now {
		if err == nil {
			now[i], err = s.ask(ctx, counted[i].name)
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the sidecar ends
	}
	if err != nil {
		s.errors.Add(1)
		s.log.Log(ctx, s.state.level(false, slog.LevelWarn), "no statistics of dnsmasq", "error", err)
		return
	}
	s.size.Store(size)
	for i, n := range now {
		s.counters[i].Add(since(s.last[i], n))
	}
	s.last = now
	s.log.Log(ctx, s.state.level(true, slog.LevelInfo), "statistics of dnsmasq", "cachesize", size, "hits", now[0], "misses", now[1])
}

// since is what was counted between two readings. A number that went down began
// again from zero: dnsmasq has been restarted, or, as it sets back only some of
// them then, has read its hosts files again.
func since(last, now uint64) uint64 {
	if now < last {
		return now
	}
	return now - last
}

// ask puts the question for one number.
func (s *statistics) ask(ctx context.Context, what string) (uint64, error) {
	name := what + ".bind."
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeTXT)
	m.Question[0].Qclass = dns.ClassCHAOS
	m.RecursionDesired = false
	reply, err := exchange(ctx, s.server, m)
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
	return 0, fmt.Errorf("%s: %s answers %s without a TXT record: is it dnsmasq, and without --no-ident?", name, s.server, rcode(reply))
}
