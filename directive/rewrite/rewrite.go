// Package rewrite changes questions on their way down and their answers on the
// way up: the rewrite directive. rewrite.go applies the rules, name.go matches
// and changes names, edns.go changes the options of EDNS, setup.go reads the
// directive. Package builtin lists Setup; nothing else calls in. It opens no
// socket and knows no other handler.
package rewrite

import (
	"context"
	"sync"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Rewrite changes questions and their answers: the rewrite directive.
//
//	rewrite [continue|stop] FIELD [MATCH] FROM TO [OPTIONS]
//	rewrite [continue|stop] {
//	    FIELD [MATCH] FROM TO
//	    OPTIONS
//	}
//
// Each use is a rule, and the rules of a server block are tried in the order in
// which they stand. The first one that fits ends the search, unless it says
// continue: then the next ones see what it has made of the question. Lines in
// braces are read as one line.
//
// The handlers below (acl, cache, kubernetes, forward and so on) see the new
// question, the client gets a reply to its own.
//
// MATCH says how FROM is compared with a name, which is in lower case and ends
// in a dot:
//
//	exact      the whole name; this is what counts without MATCH
//	prefix     what the name begins with; TO takes its place
//	suffix     what it ends in, to the final dot; TO takes its place
//	substring  what it holds somewhere; TO takes the place of each
//	regex      a regular expression that need not fit the whole name; TO is the
//	           whole new name, and {1} in it what the first group found, {0} all
//
// prefix, suffix and substring are compared as text: suffix example.org fits
// myexample.org, suffix .example.org does not.
//
// FIELD is one of these:
//
//	name [MATCH] FROM TO [answer auto|answer name REGEX NAME|answer value REGEX NAME]...
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
// name asks for another name. Resolvers refuse an answer whose records are not
// of the name that they asked for, so owners that are the new name become the
// client's name again, in its own spelling, and all other names stay. Options
// do more:
//
//	answer auto              the new name becomes the client's in the data of
//	                         records, too; with suffix, so does every name that
//	                         ends in TO
//	answer name REGEX NAME   owners that REGEX finds become NAME
//	answer value REGEX NAME  names in the data of records do: targets of CNAME,
//	                         SRV, MX, PTR, NS, HTTPS and others
//
// NAME has groups as TO has. Of rules with continue the answers are turned back
// in the opposite order. If TO makes no valid name of a query's (an empty label,
// or one of more than 63 bytes), the answer is SERVFAIL: it fails where it can
// be seen instead of asking for what nobody meant.
//
// type and class ask for records of another type (A, TYPE65) or class (IN, CH).
//
// edns0 changes the options that go to other servers with the question. set
// puts the option in, in place of one that is there; append does so only if
// there is none, replace only if there is one, and unset takes it out. A rule
// that has nothing to change does not fit. CODE is a number (0xffee, 65518);
// DATA is bytes in hexadecimal digits behind 0x, text, or one of
//
//	{qname} {protocol}         as text
//	{qtype} {client_port} {server_port}   two bytes
//	{client_ip} {server_ip}    4 or 16 bytes
//	{kubernetes/namespace}     metadata, by its key; {/kubernetes/namespace} is
//	                           the same; a query without it does not fit
//
// subnet tells so many bits of the client's address (RFC 7871). revert also
// takes options of that code out of the reply to the client.
//
// ttl, rcode and cname change replies. ttl sets the TTLs of all records in
// replies to questions for NAME: to 30, or into 30-300, 30- (at least), -300 (at
// most). rcode makes the response code TO if it is FROM: names such as
// NXDOMAIN, or numbers. ttl and rcode fit every query for NAME. cname looks
// for a CNAME record in the answer whose target FROM fits, gives it TO as its
// target, and asks for that in place of what followed. It fits every query, so
// rules behind it need its continue; queries that come to it leave their reader.
//
// A target that cname asks for, like that of an ExternalName, is a question of
// its own: it passes the rules, too. Rules that lead in a circle end after eight
// such questions in SERVFAIL. A rule is not tried again on its own result.
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
// Same as CoreDNS: syntax, order and what fits. Differs: owners that are the new
// name are turned back without answer auto; answer auto turns back the suffix
// of other names; what a client's name puts into {1} is not itself searched for
// groups.
type Rewrite struct {
	rules []rule
	word  dns.StateKey
	turns sync.Pool // of *turn
}

// A rule is one use of the directive.
type rule struct {
	change
	stop bool
}

// A change is what a rule does if it fits. An error ends the query.
type change interface {
	apply(q *dns.Query, t *turn) (fits bool, err error)
}

// A turn is one query under the rules: what the question has become, and what
// is to be done to the answer.
type turn struct {
	subject // the name
	typ     wire.Type
	class   wire.Class
	another bool // the question is not the client's any more

	renamed []renamed
	ttls    []*ttl
	codes   []*rcode
	cnames  []*cname
	reverts []uint16 // codes of options
	options []byte   // as they were, if optioned
	// optioned says that edns0 changed the options.
	optioned bool
}

func newTurn() any { return new(turn) }

func (t *turn) begin(q *dns.Query) {
	t.reset(q.Name())
	t.typ, t.class, t.another, t.optioned = q.Type, q.Class, false, false
	t.renamed, t.ttls, t.codes, t.cnames, t.reverts = t.renamed[:0], t.ttls[:0], t.codes[:0], t.cnames[:0], t.reverts[:0]
}

// AnyClass says that queries of all classes are rewritten. A class rule may
// make of them what somebody answers.
func (rw *Rewrite) AnyClass() (answers bool) {
	for _, r := range rw.rules {
		if _, ok := r.change.(*classRule); ok {
			return true
		}
	}
	return false
}

// ServeDNS applies the rules to the question.
func (rw *Rewrite) ServeDNS(q *dns.Query) dns.Verdict {
	t := rw.turns.Get().(*turn)
	t.begin(q)
	fitted := false
	for i := range rw.rules {
		r := &rw.rules[i]
		fits, err := r.apply(q, t)
		if err != nil {
			t.restoreOptions(q)
			q.Fail(wire.ServFail)
			q.Err = err
			return dns.Done
		}
		fitted = fitted || fits
		if fits && r.stop {
			break
		}
	}
	if !fitted {
		rw.end(t)
		return dns.Next
	}
	if t.another {
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

// end lets another query have the turn, with nothing of this one's.
func (rw *Rewrite) end(t *turn) {
	t.wire, t.options = nil, nil
	clear(t.renamed)
	rw.turns.Put(t)
}

// FinishDNS turns the answer back.
func (rw *Rewrite) FinishDNS(q *dns.Query) {
	t, _ := q.State(rw.word).(*turn)
	if t == nil {
		return
	}
	q.SetState(rw.word, nil)
	t.finish(q)
	rw.end(t)
}

func (t *turn) finish(q *dns.Query) {
	t.restoreOptions(q)
	for _, code := range t.reverts {
		q.RemoveReplyOption(code)
	}
	switch {
	case len(t.renamed) > 0:
		t.renamed[0].from = clientName(q)
		q.RestoreQuestion(t.rename)
	case t.another:
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

// clientName is the name in the client's own question and spelling.
func clientName(q *dns.Query) []byte {
	question := q.Request.Question(q.Packet())
	return question[:len(question)-4] // without type and class
}

func (t *turn) restoreOptions(q *dns.Query) {
	if t.optioned {
		q.Options = t.options
	}
}

// A typeRule asks for another type.
type typeRule struct{ from, to wire.Type }

func (r *typeRule) apply(_ *dns.Query, t *turn) (bool, error) {
	if t.typ != r.from {
		return false, nil
	}
	t.typ, t.another = r.to, true
	return true, nil
}

// A classRule asks for another class.
type classRule struct{ from, to wire.Class }

func (r *classRule) apply(_ *dns.Query, t *turn) (bool, error) {
	if t.class != r.from {
		return false, nil
	}
	t.class, t.another = r.to, true
	return true, nil
}

// A ttl bounds TTLs.
type ttl struct {
	pattern
	least, most uint32
}

func (r *ttl) apply(_ *dns.Query, t *turn) (bool, error) {
	if !r.fits(&t.subject) {
		return false, nil
	}
	t.ttls = append(t.ttls, r)
	return true, nil
}

// An rcode exchanges a response code.
type rcode struct {
	pattern
	from, to wire.RCode
}

func (r *rcode) apply(_ *dns.Query, t *turn) (bool, error) {
	if !r.fits(&t.subject) {
		return false, nil
	}
	t.codes = append(t.codes, r)
	return true, nil
}

// A cname exchanges the target of a CNAME.
type cname struct{ renaming }

func (r *cname) apply(_ *dns.Query, t *turn) (bool, error) {
	t.cnames = append(t.cnames, r)
	return true, nil
}

// A chasing is a Rewrite with cname rules: queries wait for their answer, since
// it may need a further question.
type chasing struct{ *Rewrite }

// Resolve asks those below, turns the answer back, and asks for the target that
// a CNAME has got.
func (c *chasing) Resolve(ctx context.Context, q *dns.Query) error {
	t := q.State(c.word).(*turn)
	q.SetState(c.word, nil)
	defer c.end(t)
	q.Next(ctx)
	t.finish(q)
	if q.Dropped() || q.Class != wire.ClassIN {
		return nil
	}
	return t.chase(ctx, q)
}

// chase gives the first CNAME that a rule is for its new target, and puts the
// target's answer in the place of what followed.
func (t *turn) chase(ctx context.Context, q *dns.Query) error {
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
	if !q.FollowCNAME(sub) { // the client goes on from there
		q.RCode, q.Err = wire.NoError, nil
		return nil
	}
	q.AA, q.AD = q.AA && sub.AA, false
	return nil
}

// alias finds the first CNAME in the answer that a rule is for; target is "" if
// there is none.
func (t *turn) alias(q *dns.Query) (at wire.Record, target wire.Name, err error) {
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
		var old subject
		old.reset(wire.AppendLower(name[:0], name))
		for _, rule := range t.cnames {
			if target, ok, err = rule.to(&old); ok || err != nil {
				at = r
				return false
			}
		}
		return true
	})
	return at, target, err
}
