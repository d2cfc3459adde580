// Package template implements the template directive, which answers queries
// with records written as Go templates. It parses records with package
// zonefile: when the Corefile is read if possible, otherwise for each query.
package template

import (
	"context"
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/expression"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Template answers queries with records generated from the query: the template directive. Its
// reference page is docs/reference/directives/template.md.
type Template struct {
	rules    []*rule
	classes  dns.ClassUse // ClassAnswered if a rule names a class other than IN
	word     dns.StateKey
	metadata expression.Metadata
	counts   *counters
}

// Setup sets up the template directive.
func Setup(b *config.Block, uses []corefile.Directive) error {
	t := &Template{word: b.NewStateKey(), counts: newCounters(b.Metrics)}
	var errs []error
	for _, d := range uses {
		r, err := t.parse(b, d)
		errs = append(errs, err)
		t.rules = append(t.rules, r)
		b.Answers(r.extent(d))
		if r.class != wire.ClassIN && r.class != wire.ClassANY {
			t.classes = dns.ClassAnswered
		}
	}
	b.Handle(t)
	b.OnPlanned(func() error {
		t.metadata = b.AnyMetadata()
		return nil
	})
	return errors.Join(errs...)
}

// known returns metadata values to templates and expressions. They are compiled
// before the block's providers of metadata are known.
func (t *Template) known(q *dns.Query, key string) string { return t.metadata(q, key) }

// AnyClass lets template see queries of every class, and reports whether a
// template names a class other than IN.
func (t *Template) AnyClass() dns.ClassUse { return t.classes }

// ServeDNS answers queries that match a template. It returns Wait only for the
// target of a CNAME.
func (t *Template) ServeDNS(q *dns.Query) dns.Verdict {
	for _, r := range t.rules {
		z := r.zone(q)
		if z == nil || !r.appliesTo(q) {
			continue
		}
		m := match{rule: r, zone: z}
		if m.matches(q) {
			if len(r.scoped) > 0 && !t.fill(q, &m) {
				return dns.Done
			}
			if m.holds(q) {
				return t.answer(q, m)
			}
		}

		if !r.through.Through(q.Name()) {
			q.Fail(wire.ServFail)
			q.Err = errUnmatched
			return dns.Done
		}
	}
	return dns.Next
}

var errUnmatched = errors.New("template: query does not match, and the template has no fallthrough")

// Resolve continues after the sub-query for the target of a CNAME.
func (t *Template) Resolve(ctx context.Context, q *dns.Query) error {
	m := q.State(t.word).(*match)
	follow(q, m, q.ResumeSubQuery(ctx))
	t.end(q, m)
	return nil
}

// answer writes the answer. It returns Wait if the target of a CNAME has to be
// waited for.
func (t *Template) answer(q *dns.Query, m match) dns.Verdict {
	r := m.rule
	if r.rcode == wire.ServFail {
		q.Fail(wire.ServFail)
		t.end(q, &m)
		return dns.Done
	}
	q.RCode, q.AA = r.rcode, true
	if r.dynamic && m.data == nil && !t.fill(q, &m) || !t.write(q, &m) {
		return dns.Done
	}

	if target := dangling(q); target != nil {
		sub, ok := q.SubQuery(target, q.Type)
		if !ok {
			kept := m
			q.SetState(t.word, &kept)
			return dns.Wait
		}
		follow(q, &m, sub)
	}
	t.end(q, &m)
	return dns.Done
}

// follow adds the answer for the target of a CNAME. The rule's rcode, if it has
// one, takes precedence.
func follow(q *dns.Query, m *match, sub *dns.Query) {
	if q.FollowCNAME(sub) && m.rule.rcode != wire.NoError {
		q.RCode = m.rule.rcode
	}
}

// end counts the match and adds the extended error.
func (t *Template) end(q *dns.Query, m *match) {
	t.counts.match(q, m)
	if e := m.rule.extended; e != nil {
		q.AddExtendedError(e.code, e.reason)
	}
}

// write adds the rule's records. If one cannot be generated it answers SERVFAIL
// and returns false.
func (t *Template) write(q *dns.Query, m *match) bool {
	for s, records := range m.rule.records {
		for _, r := range records {
			if err := r.append(q, m.data, wire.Section(s)); err != nil {
				t.fail(q, m, r, err)
				return false
			}
		}
	}
	return true
}

// fail answers SERVFAIL because of a record or var that cannot be generated.
func (t *Template) fail(q *dns.Query, m *match, r *record, err error) {
	q.Fail(wire.ServFail)
	q.Err = &Error{r.section, r.text, err}
	t.counts.match(q, m)
	t.counts.failure(q, m, r, err)
}

// dangling returns the target of the answer's last CNAME, in wire form, if it
// has to be followed. Sub-queries are always of class IN.
func dangling(q *dns.Query) (target []byte) {
	if q.Class != wire.ClassIN || q.Type == wire.TypeCNAME || q.Type == wire.TypeANY {
		return nil
	}

	a := &q.Answer
	last := 0
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Answers && r.Type == wire.TypeCNAME {
			target, _, _ = wire.ReadName(nil, a.Buf, r.RData) // we have written it
			last = r.Owner
		}
		return s == wire.Answers
	})

	if target == nil {
		return nil
	}

	// A CNAME that leads to itself does not answer for its target: it is a loop.
	found := false
	a.Walk(func(s wire.Section, r wire.Record) bool {
		owner, _, _ := wire.ReadName(nil, a.Buf, r.Owner)
		found = found || s == wire.Answers && r.Owner != last && wire.Lower(string(owner)) == wire.Lower(string(target))
		return s == wire.Answers
	})
	if found {
		return nil
	}
	return target
}
