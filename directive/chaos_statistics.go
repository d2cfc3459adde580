package directive

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A statistics is a Chaos that also counts hits and misses and answers for the
// names of statistics.
type statistics struct {
	*Chaos
	origins
	forwards []countingForward
	metrics  *metrics.Registry
	chains   []*hitCounters
}

// hitCounters are the counters of one chain.
type hitCounters struct {
	*statistics
	hits, misses *metrics.Counter
}

func setupStatistics(b *config.Block, c *Chaos) {
	s := &statistics{Chaos: c, metrics: b.Metrics}
	b.Handle(s)
	b.OnPlanned(func() error {
		s.origins, s.forwards = newOrigins(b), config.Find[countingForward](b)
		return nil
	})
}

// BindChain returns the counters of c, which serve in s's place.
func (s *statistics) BindChain(c *dns.Chain) any {
	labels := []string{"server", c.Server, "zone", c.Zone, "view", c.View}
	t := &hitCounters{
		statistics: s,
		hits: s.metrics.Counter("seamark_chaos_hits_total",
			"Queries that this server answered itself, as in hits.bind.", labels...),
		misses: s.metrics.Counter("seamark_chaos_misses_total",
			"Queries that were forwarded, as in misses.bind.", labels...),
	}
	s.chains = append(s.chains, t)
	return t
}

// ObserveDNS makes s an observer. BindChain replaces s in each chain.
func (s *statistics) ObserveDNS(*dns.Query) {}

// ObserveDNS counts q as a hit or a miss.
func (t *hitCounters) ObserveDNS(q *dns.Query) {
	switch {
	case q.Dropped():
	case t.origin(q) >= fromUpstream:
		t.misses.AddTo(q.Shard(), 1)
	default:
		t.hits.AddTo(q.Shard(), 1)
	}
}

// ServeDNS returns Wait for the names of statistics: reading counters takes the
// locks of all readers, and the caller is a reader that holds its own.
func (s *statistics) ServeDNS(q *dns.Query) dns.Verdict {
	if s.Chaos.ServeDNS(q) == dns.Done {
		return dns.Done
	}
	if q.Class != wire.ClassCH || q.Type != wire.TypeTXT || !bytes.HasSuffix(q.Name(), []byte("\x04bind\x00")) {
		return dns.Next
	}
	return dns.Wait
}

// Resolve answers if q's name is one of statistics.
func (s *statistics) Resolve(ctx context.Context, q *dns.Query) error {
	capacity, inserted, evicted := 0, uint64(0), uint64(0)
	if s.cache != nil {
		capacity, inserted, evicted = s.cache.Statistics()
	}

	number := uint64(0)
	switch string(bytes.TrimSuffix(q.Name(), []byte("\x04bind\x00"))) {
	case "\x04hits":
		number = s.sum(func(t *hitCounters) *metrics.Counter { return t.hits })
	case "\x06misses":
		number = s.sum(func(t *hitCounters) *metrics.Counter { return t.misses })
	case "\x0ainsertions":
		number = inserted
	case "\x09evictions":
		number = evicted
	case "\x09cachesize":
		number = uint64(capacity)
	case "\x04auth":
	case "\x07servers":
		appendTXT(q, s.servers()...)
		return nil
	case "\x09copyright":
		appendTXT(q, "Copyright (c) The Seamark authors")
		return nil
	default:
		q.Next(ctx)
		return nil
	}
	appendTXT(q, strconv.FormatUint(number, 10))
	return nil
}

// sum returns the total of one counter over the block's chains.
func (s *statistics) sum(counter func(*hitCounters) *metrics.Counter) (n uint64) {
	for _, t := range s.chains {
		n += counter(t).Value()
	}
	return n
}

// servers returns one text for each upstream: ADDRESS#PORT QUERIES FAILURES.
func (s *statistics) servers() (texts []string) {
	seen := map[string]bool{}
	for _, f := range s.forwards {
		f.Sent(func(upstream string, queries, unanswered uint64) {
			if seen[upstream] {
				return // the numbers already include every forward
			}
			seen[upstream] = true
			if addr, err := netip.ParseAddrPort(upstream); err == nil {
				upstream = fmt.Sprintf("%s#%d", addr.Addr(), addr.Port())
			}
			const maxUpstream = 200 // leaves room for the numbers
			texts = append(texts, fmt.Sprintf("%.*s %d %d", maxUpstream, upstream, queries, unanswered))
		})
	}
	return texts
}
