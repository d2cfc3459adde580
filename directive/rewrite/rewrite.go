// Package rewrite implements the rewrite directive, which changes queries and
// the answers to them. rewrite.go applies the rules, name.go matches and
// changes names, edns.go changes EDNS options, setup.go reads the directive.
// Package builtin lists Setup and is the only caller. The package opens no
// sockets and depends on no other handler.
package rewrite

import (
	"context"
	"sync"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Rewrite changes queries and their answers: the rewrite directive.
//
//	rewrite [continue|stop] FIELD [MATCH] FROM TO [OPTIONS]
//	rewrite [continue|stop] {
//	    FIELD [MATCH] FROM TO
//	    OPTIONS
//	}
//
// Each rewrite is a rule. The rules of a server block are tried in the order of
// the Corefile. The first rule that matches ends the search, unless it has
// continue: then the following rules see the changed query. The lines in braces
// are read as one line. Words other than names and data may be written in
// capitals.
//
// The directives below rewrite (acl, cache, kubernetes, forward and others) see
// the changed query. The client gets a reply to its own query.
//
// MATCH selects how FROM is compared with a name. Names are in lower case with
// a final dot.
//
//	exact      the whole name; the default
//	prefix     the beginning of the name; TO replaces it
//	suffix     the end of the name, including the final dot; TO replaces it
//	substring  any part of the name; TO replaces every occurrence
//	regex      a regular expression, which need not match the whole name; TO is the
//	           whole new name; {1} in it is the first group, {0} the whole match
//
// prefix, suffix and substring compare text, not labels: suffix example.org
// matches myexample.org, suffix .example.org does not.
//
// FIELD is one of these:
//
//	name [MATCH] FROM TO [answer auto|name REGEX NAME|value REGEX NAME]...
//	type FROM TO
//	class FROM TO
//	edns0 local set|append|replace CODE DATA [revert]
//	edns0 nsid set|append|replace [revert]
//	edns0 subnet set|append|replace IPV4-BITS IPV6-BITS [revert]
//	edns0 local unset CODE [revert]
//	edns0 nsid|subnet unset [revert]
//	ttl [MATCH] NAME TTL
//	rcode [MATCH] NAME FROM TO
//	cname [MATCH] FROM TO
//
// name changes the query name. Resolvers reject answers with records of a name
// that they did not query, so owner names equal to the new name are changed
// back to the client's name, in the client's spelling. Other names stay. Use
// the answer options to change more; the word answer may be omitted from the
// second one on:
//
//	answer auto              also changes the new name back in the data of records;
//	                         with suffix, every name that ends in TO
//	answer name REGEX NAME   changes owner names that match REGEX to NAME
//	answer value REGEX NAME  changes names in the data of records: targets of CNAME,
//	                         SRV, MX, PTR, NS, HTTPS and others
//
// NAME may contain groups, as TO. You cannot combine auto with name. The answer
// options of a rule apply from the last to the first. If several rules with
// continue have matched, their changes are undone in the opposite order. If TO
// results in an invalid name (an empty label, or one longer than 63 bytes), the
// query is answered with SERVFAIL.
//
// type and class change the query's type (A, TYPE65) or class (IN, CH).
//
// edns0 changes the EDNS options of forwarded queries. set adds the option,
// replacing one with the same code; append adds it only if there is none;
// replace replaces it only if there is one; unset removes it. A rule that
// changes nothing does not match. CODE is a number (0xffee, 65518). DATA is 0x
// followed by hexadecimal digits, text, or one of
//
//	{qname} {protocol}         as text
//	{qtype} {client_port} {server_port}   two bytes
//	{client_ip} {server_ip}    4 or 16 bytes
//	{kubernetes/namespace}     a metadata value; {/kubernetes/namespace} is the same;
//	                           the rule does not match if there is no value
//
// subnet sends this many bits of the client's address (RFC 7871). With revert,
// the options of that code in the reply are replaced by the options that the client
// sent, and removed if the client sent none.
//
// ttl, rcode and cname change replies. ttl limits the TTLs of all records in
// replies to queries for NAME: 30 (exactly), 30-300, 30- (at least) or -300 (at
// most). rcode changes the response code from FROM to TO, which are names such
// as NXDOMAIN or numbers. ttl and rcode match every query for NAME. cname looks
// for a CNAME record whose target matches FROM, changes the target to TO, and
// resolves it in place of the records that followed. cname matches every query,
// so rules after it require its continue; queries that reach it are parked.
//
// The target of a cname rule, like the target of an ExternalName, is resolved by a
// sub-query to which the rules apply as well. Rules that lead in a circle end
// in SERVFAIL after eight sub-queries. A rule is not applied to its own result.
//
//	.:1053 {
//	    rewrite continue ttl suffix .example.org -30
//	    rewrite name exact db.example.org db.shop.svc.cluster.local
//	    rewrite stop {
//	        name regex (.*)\.apps\.example\.org {1}.apps.svc.cluster.local
//	        answer name (.*)\.apps\.svc\.cluster\.local {1}.apps.example.org
//	    }
//	    rewrite type ANY A
//	    whoami
//	}
//
// Same as CoreDNS: syntax, order and matching. Differs: owner names equal to
// the new name are changed back without answer auto; answer auto changes back
// the suffix of other names; groups in TO are not expanded inside the text that
// a group has matched.
type Rewrite struct {
	rules        []rule
	word         dns.StateKey
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
	ttls    []*ttl
	codes   []*rcode
	cnames  []*cname
	reverts []replyOption

	optionsChanged bool
	options        []byte // before the change
}

func newTransaction() any { return new(transaction) }

func (t *transaction) prepare(q *dns.Query) {
	t.reset(q.Name())
	t.typ, t.class, t.changed, t.optionsChanged = q.Type, q.Class, false, false
	t.renamed, t.ttls, t.codes, t.cnames, t.reverts = t.renamed[:0], t.ttls[:0], t.codes[:0], t.cnames[:0], t.reverts[:0]
}

// AnyClass lets rewrite see queries of every class. It reports whether a class
// rule may turn them into queries that have an answer.
func (rw *Rewrite) AnyClass() (answers bool) {
	for _, r := range rw.rules {
		if _, ok := r.change.(*classRule); ok {
			return true
		}
	}
	return false
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
	q.SetState(rw.word, t)
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
	t, _ := q.State(rw.word).(*transaction)
	if t == nil {
		return
	}
	q.SetState(rw.word, nil)
	t.finish(q)
	rw.release(t)
}

func (t *transaction) finish(q *dns.Query) {
	t.restoreOptions(q)
	for i := len(t.reverts) - 1; i >= 0; i-- {
		t.reverts[i].restore(q)
	}
	switch {
	case len(t.renamed) > 0:
		t.renamed[0].from = clientName(q)
		q.RestoreQuestion(t.restoreName)
	case t.changed:
		q.RestoreQuestion(nil)
	}
	for _, c := range t.codes {
		if q.RCode == c.from {
			q.RCode = c.to
			break
		}
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

// A ttl limits TTLs.
type ttl struct {
	pattern
	least, most uint32
}

func (r *ttl) apply(_ *dns.Query, t *transaction) (bool, error) {
	if !r.matches(&t.domain) {
		return false, nil
	}
	t.ttls = append(t.ttls, r)
	return true, nil
}

// An rcode changes a response code.
type rcode struct {
	pattern
	from, to wire.RCode
}

func (r *rcode) apply(_ *dns.Query, t *transaction) (bool, error) {
	if !r.matches(&t.domain) {
		return false, nil
	}
	t.codes = append(t.codes, r)
	return true, nil
}

// A cname changes the target of a CNAME.
type cname struct{ renaming }

func (r *cname) apply(_ *dns.Query, t *transaction) (bool, error) {
	t.cnames = append(t.cnames, r)
	return true, nil
}

// A cnameRewrite is a Rewrite with cname rules. All its queries are parked,
// because the answer may require a sub-query.
type cnameRewrite struct{ *Rewrite }

// Resolve runs the handlers below, changes the answer, and resolves the new
// target of a CNAME.
func (c *cnameRewrite) Resolve(ctx context.Context, q *dns.Query) error {
	t := q.State(c.word).(*transaction)
	q.SetState(c.word, nil)
	defer c.release(t)
	q.Next(ctx)
	t.finish(q)
	if q.Dropped() || q.Class != wire.ClassIN {
		return nil
	}
	return t.chase(ctx, q)
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
	sub, ok := q.SubQuery([]byte(target), t.typ)
	if !ok {
		sub = q.ResumeSubQuery(ctx)
	}
	if !q.FollowCNAME(sub) { // the client resolves the target itself
		q.RCode, q.Err = wire.NoError, nil
		return nil
	}
	q.AA, q.AD = q.AA && sub.AA, false
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
