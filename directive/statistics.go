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

// A statistics is a Chaos that also counts, and tells the numbers.
type statistics struct {
	*Chaos
	origins
	senders []sender
	metrics *metrics.Registry
	tallies dns.PerChain[tally]
}

// A tally is what is counted for one chain.
type tally struct {
	*statistics
	hits, misses *metrics.Counter
}

func newStatistics(b *config.Block, c *Chaos) {
	s := &statistics{Chaos: c, metrics: b.Metrics}
	b.Handle(s)
	b.OnPlanned(func() error {
		s.origins, s.senders = newOrigins(b), config.Find[sender](b)
		return nil
	})
	b.OnChain(func(c *dns.Chain) { c.Exchange(s, s.tallies.At(c, s.begin)) })
}

func (s *statistics) begin(c *dns.Chain) *tally {
	labels := []string{"server", c.Server, "zone", c.Zone, "view", c.View}
	return &tally{
		statistics: s,
		hits:       s.metrics.Counter("seamark_chaos_hits_total", "Queries that were not sent on, as hits.bind tells them.", labels...),
		misses:     s.metrics.Counter("seamark_chaos_misses_total", "Queries that were sent on, as misses.bind tells them.", labels...),
	}
}

// ObserveDNS counts q where no chain has a tally in s's place.
func (s *statistics) ObserveDNS(q *dns.Query) { s.tallies.At(q.Chain(), s.begin).ObserveDNS(q) }

// ObserveDNS counts q.
func (t *tally) ObserveDNS(q *dns.Query) {
	switch {
	case q.Dropped():
	case t.of(q) >= byOthers:
		t.misses.AddTo(q.Shard(), 1)
	default:
		t.hits.AddTo(q.Shard(), 1)
	}
}

// ServeDNS lets the names of numbers wait: who reads counters must not be a reader
// of packets, whose own part in them is locked.
func (s *statistics) ServeDNS(q *dns.Query) dns.Verdict {
	if s.Chaos.ServeDNS(q) == dns.Done {
		return dns.Done
	}
	if q.Class != wire.ClassCH || q.Type != wire.TypeTXT || !bytes.HasSuffix(q.Name(), []byte("\x04bind\x00")) {
		return dns.Next
	}
	return dns.Wait
}

// Resolve tells a number, if q asks for one.
func (s *statistics) Resolve(ctx context.Context, q *dns.Query) error {
	capacity, inserted, evicted := 0, uint64(0), uint64(0)
	if s.memory != nil {
		capacity, inserted, evicted = s.memory.Statistics()
	}
	number := uint64(0)
	switch string(bytes.TrimSuffix(q.Name(), []byte("\x04bind\x00"))) {
	case "\x04hits":
		number = s.sum(func(t *tally) *metrics.Counter { return t.hits })
	case "\x06misses":
		number = s.sum(func(t *tally) *metrics.Counter { return t.misses })
	case "\x0ainsertions":
		number = inserted
	case "\x09evictions":
		number = evicted
	case "\x09cachesize":
		number = uint64(capacity)
	case "\x04auth":
	case "\x07servers":
		say(q, s.servers()...)
		return nil
	case "\x09copyright":
		say(q, "Copyright (c) The Seamark authors")
		return nil
	default:
		q.Next(ctx)
		return nil
	}
	say(q, strconv.FormatUint(number, 10))
	return nil
}

// sum adds up the counters of the block's chains.
func (s *statistics) sum(counter func(*tally) *metrics.Counter) (n uint64) {
	for t := range s.tallies.All() {
		n += counter(t).Value()
	}
	return n
}

// servers is a text for each upstream, ADDRESS#PORT QUESTIONS UNANSWERED.
func (s *statistics) servers() (texts []string) {
	said := map[string]bool{}
	for _, sender := range s.senders {
		sender.Sent(func(upstream string, questions, unanswered uint64) {
			if said[upstream] {
				return // the numbers are those of all forwards
			}
			said[upstream] = true
			if addr, err := netip.ParseAddrPort(upstream); err == nil {
				upstream = fmt.Sprintf("%s#%d", addr.Addr(), addr.Port())
			}
			const room = 200 // the numbers have place behind it
			texts = append(texts, fmt.Sprintf("%.*s %d %d", room, upstream, questions, unanswered))
		})
	}
	return texts
}
