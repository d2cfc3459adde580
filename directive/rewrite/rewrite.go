// Package rewrite implements the rewrite directive, which changes queries and
// the answers to them. rewrite.go applies the rules, name.go matches and
// changes names, edns.go changes EDNS options, setup.go reads the directive.
// Package builtin lists Setup and is the only caller. The package opens no
// sockets and depends on no other handler.
package rewrite

import (
	"context"
	"slices"
	"sync"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Rewrite changes queries and their answers: the rewrite directive. Its reference page is
// docs/reference/directives/rewrite.md.
type Rewrite struct {
	rules        []rule
	stateKey     dns.StateKey
	transactions sync.Pool // of *transaction
}

// A rule is one rewrite directive.
type rule struct {
	change
	stop     bool
	text, at string // the rule, and its file and line
}

// A change is the effect of a rule. apply reports whether the rule matches. An
// error ends the query with SERVFAIL.
type change interface {
	apply(q *dns.Query, t *transaction) (matched bool, err error)
}

// A transaction is the state of one query: the changed question, and the
// changes to make to the answer.
type transaction struct {
	domain  // the query name
	typ     wire.Type
	class   wire.Class
	changed bool // the question is not the client's

	renamed []renamed
	ttls    []*ttlRule
	codes   []*rcodeRule
	cnames  []*cnameRule
	reverts []replyOption

	optionsChanged bool
	options        []byte // before the change
}

func newTransaction() any { return new(transaction) }

func (t *transaction) prepare(q *dns.Query) {
	t.reset(q.Name())
	t.typ, t.class, t.changed, t.optionsChanged = q.Type, q.Class, false, false
	t.renamed, t.reverts = t.renamed[:0], t.reverts[:0]
	t.ttls, t.codes, t.cnames = t.ttls[:0], t.codes[:0], t.cnames[:0]
}

// AnyClass lets rewrite see queries of every class, which a rule for the class changes.
func (rw *Rewrite) AnyClass() dns.ClassUse {
	for _, r := range rw.rules {
		if _, ok := r.change.(*classRule); ok {
			return dns.ClassChanged
		}
	}
	return dns.ClassPassed
}

// ServeDNS applies the rules to q.
func (rw *Rewrite) ServeDNS(q *dns.Query) dns.Verdict {
	t := rw.transactions.Get().(*transaction)
	t.prepare(q)

	anyMatched := false
	for i := range rw.rules {
		r := &rw.rules[i]
		matched, err := r.apply(q, t)
		if err != nil {
			t.restoreOptions(q)
			q.Fail(wire.ServFail)
			q.Err = err
			return dns.Done
		}
		anyMatched = anyMatched || matched
		if matched && r.stop {
			break
		}
	}
	if !anyMatched {
		rw.release(t)
		return dns.Next
	}

	if t.changed {
		name := t.wire
		if len(t.renamed) == 0 {
			name = q.QuestionName()
		}
		q.SetQuestion(name, t.typ, t.class)
	}

	q.SetState(rw.stateKey, t)
	if len(t.cnames) > 0 {
		return dns.Wait
	}
	return dns.Next
}

// release returns t to the pool.
func (rw *Rewrite) release(t *transaction) {
	t.wire, t.options = nil, nil
	clear(t.renamed)
	clear(t.reverts)
	rw.transactions.Put(t)
}

// FinishDNS changes the answer.
func (rw *Rewrite) FinishDNS(q *dns.Query) {
	t, _ := q.State(rw.stateKey).(*transaction)
	if t == nil {
		return
	}
	q.SetState(rw.stateKey, nil)
	t.restore(q)
	t.limit(q)
	rw.release(t)
}

// restore makes the answer one to the client's question.
func (t *transaction) restore(q *dns.Query) {
	t.restoreOptions(q)
	for _, r := range slices.Backward(t.reverts) {
		r.restore(q)
	}

	switch {
	case len(t.renamed) > 0:
		t.renamed[0].from = clientName(q)
		q.RestoreQuestion(t.restoreName)
	case t.changed:
		q.RestoreQuestion(nil)
	}
}

// limit applies the rules rcode and ttl to the answer.
func (t *transaction) limit(q *dns.Query) {
	for _, c := range t.codes {
		if q.RCode == c.from {
			q.RCode = c.to
			break
		}
	}
	if q.Type.IsTransfer() {
		return
	}
	for _, l := range t.ttls {
		q.Answer.ClampTTL(q.Answer.RecordsOffset(), l.least, l.most)
	}
}

// clientName returns the name in the client's own question, in its spelling.
func clientName(q *dns.Query) []byte {
	question := q.Request.Question(q.Packet())
	return question[:len(question)-4] // without type and class
}

func (t *transaction) restoreOptions(q *dns.Query) {
	if t.optionsChanged {
		q.Options = t.options
	}
}

// A typeRule changes the query's type.
type typeRule struct{ from, to wire.Type }

func (r *typeRule) apply(_ *dns.Query, t *transaction) (bool, error) {
	if t.typ != r.from {
		return false, nil
	}
	t.typ, t.changed = r.to, true
	return true, nil
}

// A classRule changes the query's class.
type classRule struct{ from, to wire.Class }

func (r *classRule) apply(_ *dns.Query, t *transaction) (bool, error) {
	if t.class != r.from {
		return false, nil
	}
	t.class, t.changed = r.to, true
	return true, nil
}

// A ttlRule limits TTLs.
type ttlRule struct {
	pattern
	least, most uint32
}

func (r *ttlRule) apply(_ *dns.Query, t *transaction) (bool, error) {
	if !r.matches(&t.domain) {
		return false, nil
	}
	t.ttls = append(t.ttls, r)
	return true, nil
}

// An rcodeRule changes a response code.
type rcodeRule struct {
	pattern
	from, to wire.RCode
}

func (r *rcodeRule) apply(_ *dns.Query, t *transaction) (bool, error) {
	if !r.matches(&t.domain) {
		return false, nil
	}
	t.codes = append(t.codes, r)
	return true, nil
}

// A cnameRule changes the target of a CNAME.
type cnameRule struct{ renaming }

func (r *cnameRule) apply(_ *dns.Query, t *transaction) (bool, error) {
	t.cnames = append(t.cnames, r)
	return true, nil
}

// A cnameRewrite is a Rewrite with cname rules. All its queries are parked,
// because the answer may require a sub-query.
type cnameRewrite struct{ *Rewrite }

// Resolve runs the handlers below, changes the answer, and resolves the new
// target of a CNAME.
func (c *cnameRewrite) Resolve(ctx context.Context, q *dns.Query) error {
	t := q.State(c.stateKey).(*transaction)
	q.SetState(c.stateKey, nil)
	defer c.release(t)

	q.Next(ctx)
	t.restore(q)
	var err error
	if !q.Dropped() && q.Class == wire.ClassIN {
		err = t.chase(ctx, q)
	}
	t.limit(q)
	return err
}

// chase changes the target of the first CNAME that a rule matches, and replaces
// the records after it with the answer for the new target.
func (t *transaction) chase(ctx context.Context, q *dns.Query) error {
	at, target, err := t.alias(q)
	if err != nil || target == "" {
		return err
	}

	old, passed := q.Answer, false
	only := t.typ == wire.TypeCNAME || t.typ == wire.TypeANY
	q.Answer.Reset(nil, q.Question())
	old.Walk(func(s wire.Section, r wire.Record) bool {
		if passed && !only {
			return false
		}
		var rename wire.Rename
		if r.Owner == at.Owner {
			passed = true
			rename = func(name []byte, _ wire.Type, rdata bool) []byte {
				if rdata {
					return []byte(target)
				}
				return name
			}
		}
		_, err = q.Answer.AppendRenamed(s, old.Buf, r.Owner, rename)
		return err == nil
	})
	if err != nil || only {
		return err
	}

	sub := q.ResolveSubQuery(ctx, []byte(target), t.typ)
	if !q.FollowCNAME(sub) { // the client resolves the target itself
		q.RCode, q.Err = wire.NoError, nil
		return nil
	}
	q.AA, q.AD = q.AA && sub.AA, false
	q.Cacheable = q.Cacheable && sub.Cacheable // a forward may follow q's alias
	return nil
}

// alias returns the first CNAME in the answer that a rule matches. target is ""
// if there is none.
func (t *transaction) alias(q *dns.Query) (at wire.Record, target wire.Name, err error) {
	a := &q.Answer
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s != wire.Answers {
			return false
		}
		if r.Type != wire.TypeCNAME {
			return true
		}
		name, _, ok := wire.ReadName(nil, a.Buf, r.RData)
		if !ok {
			return true
		}

		var old domain
		old.reset(wire.AppendLower(name[:0], name))
		for _, rule := range t.cnames {
			if target, ok, err = rule.rename(&old); ok || err != nil {
				at = r
				return false
			}
		}
		return true
	})
	return at, target, err
}
