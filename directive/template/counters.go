package template

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// counters are the directive's counters. Each is registered at its first use;
// queries find it in an immutable map.
type counters struct {
	registry *metrics.Registry
	mu       sync.Mutex // held while registering
	byKey    atomic.Pointer[map[key]*metrics.Counter]
}

// A key identifies a counter. Clients choose class and type, so unnamed ones
// are 0.
type key struct {
	chain     *dns.Chain
	zone      *zone
	class     wire.Class
	qtype     wire.Type
	record    *record // the record that failed; nil for a match
	malformed bool    // the generated text is not a record
}

func newCounters(r *metrics.Registry) *counters {
	t := &counters{registry: r}
	t.byKey.Store(&map[key]*metrics.Counter{})
	return t
}

func (t *counters) match(q *dns.Query, m *match) { t.add(keyOf(q, m)) }

// failure counts a record that was omitted because of err.
func (t *counters) failure(q *dns.Query, m *match, r *record, err error) {
	k := keyOf(q, m)
	k.record, k.malformed = r, errors.As(err, new(*malformed))
	t.add(k)
}

func keyOf(q *dns.Query, m *match) key {
	k := key{chain: q.Chain(), zone: m.zone, class: q.Class, qtype: q.Type}
	if strings.HasPrefix(k.class.String(), "CLASS") {
		k.class = 0
	}
	if strings.HasPrefix(k.qtype.String(), "TYPE") {
		k.qtype = 0
	}
	return k
}

func (t *counters) add(k key) {
	c := (*t.byKey.Load())[k]
	if c == nil {
		c = t.register(k)
	}
	c.Add(1)
}

func (t *counters) register(k key) *metrics.Counter {
	t.mu.Lock()
	defer t.mu.Unlock()

	class, qtype := "other", "other"
	if k.class != 0 {
		class = k.class.String()
	}
	if k.qtype != 0 {
		qtype = k.qtype.String()
	}
	labels := []string{
		"server", k.chain.Server, "zone", k.zone.text, "view", k.chain.View, "class", class, "type", qtype,
	}

	name, help := "coredns_template_matches_total", "Queries that matched a template."
	switch {
	case k.record != nil && k.malformed:
		name, help = "coredns_template_rr_failures_total", "Generated records that could not be parsed."
	case k.record != nil:
		name, help = "coredns_template_template_failures_total", "Templates that could not be executed."
	}
	if k.record != nil {
		labels = append(labels, "section", k.record.section, "template", k.record.label())
	}

	c := t.registry.Counter(name, help, labels...)
	clone := maps.Clone(*t.byKey.Load())
	clone[k] = c
	t.byKey.Store(&clone)
	return c
}
