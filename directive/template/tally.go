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

// A tally is the directive's counters. Each is asked of the registry at its
// first use; after that a query finds it in a map that nobody changes.
type tally struct {
	registry *metrics.Registry
	begin    sync.Mutex
	counters atomic.Pointer[map[key]*metrics.Counter]
}

// A key is the labels of a counter. Clients choose class and type, so those
// without a name are 0.
type key struct {
	chain  *dns.Chain
	zone   *zone
	class  wire.Class
	qtype  wire.Type
	record *record // what failed; nil for a match
	made   bool    // its text was made, and is no record
}

func newTally(r *metrics.Registry) *tally {
	t := &tally{registry: r}
	t.counters.Store(&map[key]*metrics.Counter{})
	return t
}

func (t *tally) match(q *dns.Query, m *match) { t.add(keyOf(q, m)) }

// failure counts a record that err has kept from the answer.
func (t *tally) failure(q *dns.Query, m *match, r *record, err error) {
	k := keyOf(q, m)
	var bad *malformed
	k.record, k.made = r, errors.As(err, &bad)
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

func (t *tally) add(k key) {
	c := (*t.counters.Load())[k]
	if c == nil {
		c = t.ask(k)
	}
	c.Add(1)
}

func (t *tally) ask(k key) *metrics.Counter {
	t.begin.Lock()
	defer t.begin.Unlock()
	class, qtype := "other", "other"
	if k.class != 0 {
		class = k.class.String()
	}
	if k.qtype != 0 {
		qtype = k.qtype.String()
	}
	labels := []string{"server", k.chain.Server, "zone", k.zone.text, "view", k.chain.View, "class", class, "type", qtype}
	name, help := "coredns_template_matches_total", "Queries that a template matched."
	switch {
	case k.record != nil && k.made:
		name, help = "coredns_template_rr_failures_total", "Records made by a template that could not be read."
	case k.record != nil:
		name, help = "coredns_template_template_failures_total", "Templates that could not be filled in."
	}
	if k.record != nil {
		labels = append(labels, "section", k.record.section, "template", k.record.text)
	}
	c := t.registry.Counter(name, help, labels...)
	counters := maps.Clone(*t.counters.Load())
	counters[k] = c
	t.counters.Store(&counters)
	return c
}
