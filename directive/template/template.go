// Package template answers queries with records that are written like Go
// templates: the template directive. It reads their text by package zonefile,
// when the Corefile is read if it can, else for each query.
package template

import (
	"context"
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/internal/expression"
	"github.com/seamark/seamark/wire"
)

// A Template answers with records made from the question: the template
// directive.
//
//	template CLASS TYPE [ZONES...] {
//	    match REGEX...
//	    expr EXPRESSION
//	    var NAME EXPRESSION
//	    answer RR...
//	    additional RR...
//	    authority RR...
//	    rcode CODE
//	    ederror CODE [REASON]
//	    fallthrough [ZONES...]
//	}
//
// It is for queries of CLASS and TYPE, either of which may be ANY, that are for
// ZONES or below them; without ZONES, for the server block's zones. It may be
// given several times, and the first one that matches answers, with AA. Queries
// that none is for go to the handlers below.
//
// match: one of REGEX (https://golang.org/s/re2syntax) must match the name, in
// lower case with its final dot; without match, any does. It may be given
// several times; the first REGEX that matches counts.
//
// expr: EXPRESSION, the rest of the line as in the view directive, must be true.
// It may be given several times; all of them must be.
//
// fallthrough: what happens to a query that the template is for and that does
// not match: the next template is tried, and then the handlers below. With
// ZONES, if its name is in one of them. Otherwise the answer is SERVFAIL, with a
// line of the errors directive.
//
// answer, additional, authority: RR is one record, as in a zone file, in quotes.
// It may leave out the TTL, which is 3600 then, and the class. It is a Go
// template (https://pkg.go.dev/text/template), and what is between {{ and }} is
// made anew for each query. An RR that comes out empty adds nothing.
//
//	.Name      the name, in lower case with its final dot; special characters
//	           are escaped as in zone files
//	.Class     the class: IN
//	.Type      the type: A
//	.Zone      the zone of ZONES that the name is in
//	.Match     what REGEX matched: {{ index .Match 0 }} is all of it,
//	           {{ index .Match 1 }} its first group
//	.Group     the named groups of REGEX: {{ .Group.host }} is that of (?P<host>...)
//	.Regex     the REGEX that matched
//	.Remote    the client's address
//	.Question  the question: .Question.Name as it was spelled, .Question.Qtype
//	           and .Question.Qclass as numbers
//	.Message   the query: .Message.Id, .Message.Opcode, .Message.Question, and the
//	           flags .Message.RecursionDesired, .Message.CheckingDisabled,
//	           .Message.AuthenticatedData and .Message.Zero
//	.Meta      what the metadata directive knows: {{ .Meta "kubernetes/namespace" }}
//	.Var       the values of var: {{ .Var.host }}
//	parseInt   a number from a string, a base and its bits: {{ parseInt .Group.a 16 8 }}
//
// var: NAME is the value of EXPRESSION, which may have any type.
//
// rcode: the response code, NOERROR unless given. With SERVFAIL there are no
// records in the answer.
//
// ederror: an extended error (RFC 8914) for clients that use EDNS: its code,
// 0..65535, and a text.
//
// A CNAME record whose target has no record in the answer section is followed,
// unless the question is for CNAME or ANY: the target is asked of this server,
// and its records, its response code and, if there are none, its SOA record
// become part of the answer. Where no server block has the target, the CNAME
// record is the answer.
//
// RRs without {{ are read when the Corefile is read, and an error there is one of
// the Corefile, as are unknown names in the others. An RR that cannot be read
// when it is made, or cannot be made, gives SERVFAIL and a line of the errors
// directive.
//
// Metrics; zone is .Zone, class and type are the question's, or other:
//
//	coredns_template_matches_total{server, zone, view, class, type}
//	coredns_template_template_failures_total{server, zone, view, class, type, section, template}
//	coredns_template_rr_failures_total{server, zone, view, class, type, section, template}
//
// Every name of internal.example has one address, and nothing else:
//
//	.:1053 {
//	    template IN A internal.example {
//	        answer "{{ .Name }} 60 IN A 192.0.2.53"
//	    }
//	    template IN ANY internal.example {
//	        authority "internal.example. 60 IN SOA ns.internal.example. admin.internal.example. 1 60 60 60 60"
//	    }
//	    whoami
//	}
//
// Addresses that stand in names, and back again:
//
//	.:1053 {
//	    template IN A example.org {
//	        match ^ip-(?P<a>\d+)-(?P<b>\d+)-(?P<c>\d+)-(?P<d>\d+)[.]example[.]org[.]$
//	        answer "{{ .Name }} 60 IN A {{ .Group.a }}.{{ .Group.b }}.{{ .Group.c }}.{{ .Group.d }}"
//	        fallthrough
//	    }
//	    template IN PTR 10.in-addr.arpa {
//	        match ^(?P<d>\d+)[.](?P<c>\d+)[.](?P<b>\d+)[.]10[.]in-addr[.]arpa[.]$
//	        answer "{{ .Name }} 60 IN PTR ip-10-{{ .Group.b }}-{{ .Group.c }}-{{ .Group.d }}.example.org."
//	    }
//	    whoami
//	}
//
// The same with a CIDR's worth of checking, and a value:
//
//	.:1053 {
//	    template IN TXT where.example {
//	        expr incidr(client_ip(), '10.0.0.0/8')
//	        var labels split(name(), '.')
//	        answer "{{ .Name }} 0 IN TXT \"{{ index .Var.labels 0 }} for {{ .Remote }}\""
//	        fallthrough
//	    }
//	    whoami
//	}
//
// Names that only a search path can have made do not exist:
//
//	.:1053 {
//	    template ANY ANY corp.example {
//	        match "[.](com|net|org)[.]corp[.]example[.]$"
//	        rcode NXDOMAIN
//	        authority "corp.example. 60 IN SOA ns.corp.example. admin.corp.example. 1 60 60 60 60"
//	        ederror 15 "made by a search path"
//	        fallthrough
//	    }
//	    whoami
//	}
//
// Same as CoreDNS: syntax, values, fallthrough and metrics. Differs: CNAME
// records are followed for every type, not for A and AAAA alone; .Message has
// the header and the question only; TYPE and CODE may be in any case; a type
// that has no name is other in metrics. Ours: an RR that comes out empty adds
// nothing; expr and var have the view directive's functions.
type Template struct {
	rules    []*rule
	answers  bool // some rule is for another class, by its name
	word     dns.StateKey
	metadata expression.Metadata
	counts   *tally
}

// Setup is the Setup of template.
func Setup(b *config.Block, uses []corefile.Directive) error {
	t := &Template{word: b.NewStateKey(), counts: newTally(b.Metrics)}
	var errs []error
	for _, d := range uses {
		r, err := t.parse(b, d)
		errs = append(errs, err)
		t.rules = append(t.rules, r)
		t.answers = t.answers || r.class != wire.ClassIN && r.class != wire.ClassANY
	}
	b.Handle(t)
	b.OnPlanned(func() error {
		t.metadata = b.AnyMetadata()
		return nil
	})
	return errors.Join(errs...)
}

// known is what templates and expressions ask for metadata: what b knows when
// all of it has been set up.
func (t *Template) known(q *dns.Query, key string) string { return t.metadata(q, key) }

// AnyClass says that queries of other classes than IN are looked at, and
// whether a template names one.
func (t *Template) AnyClass() (answers bool) { return t.answers }

// ServeDNS answers what a template is for. It waits for the target of a CNAME
// record only.
func (t *Template) ServeDNS(q *dns.Query) dns.Verdict {
	for _, r := range t.rules {
		z := r.zone(q)
		if z == nil || !r.asked(q) {
			continue
		}
		m := match{rule: r, zone: z}
		if m.matches(q) {
			return t.begin(q, m)
		}
		if !r.through.Through(q.Name()) {
			q.Fail(wire.ServFail)
			q.Err = errUnmatched
			return dns.Done
		}
	}
	return dns.Next
}

var errUnmatched = errors.New("template: the query is of its class, type and zones, does not match, and there is no fallthrough")

// Resolve takes up the chase of a CNAME whose target had to wait.
func (t *Template) Resolve(ctx context.Context, q *dns.Query) error {
	m := q.State(t.word).(*match)
	follow(q, m, q.ResumeSubQuery(ctx))
	t.end(q, m)
	return nil
}

// begin writes the answer. If it ends in a CNAME it must wait for the target
// perhaps.
func (t *Template) begin(q *dns.Query, m match) dns.Verdict {
	r := m.rule
	if r.rcode == wire.ServFail {
		q.Fail(wire.ServFail)
		t.end(q, &m)
		return dns.Done
	}
	q.RCode, q.AA = r.rcode, true
	if r.changes && !t.fill(q, &m) || !t.write(q, &m) {
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

// follow adds what the target of a CNAME gave. The code is the rule's own if it
// has one.
func follow(q *dns.Query, m *match, sub *dns.Query) {
	if q.FollowCNAME(sub) && m.rule.rcode != wire.NoError {
		q.RCode = m.rule.rcode
	}
}

// end counts the match, and says what is said beside the answer.
func (t *Template) end(q *dns.Query, m *match) {
	t.counts.match(q, m)
	if e := m.rule.extended; e != nil {
		q.AddExtendedError(e.code, e.reason)
	}
}

// write adds the rule's records. It says false, and answers SERVFAIL, if one of
// them cannot be made.
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

// fail answers SERVFAIL for a record, or a var, that cannot be made.
func (t *Template) fail(q *dns.Query, m *match, r *record, err error) {
	q.Fail(wire.ServFail)
	q.Err = &Error{r.section, r.text, err}
	t.counts.match(q, m)
	t.counts.failure(q, m, r, err)
}

// dangling is the target of the answer's last CNAME if it has to be followed,
// in wire form. Further questions are of class IN.
func dangling(q *dns.Query) (target []byte) {
	if q.Class != wire.ClassIN || q.Type == wire.TypeCNAME || q.Type == wire.TypeANY {
		return nil
	}
	a := &q.Answer
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Answers && r.Type == wire.TypeCNAME {
			target, _, _ = wire.ReadName(nil, a.Buf, r.RData) // we have written it
		}
		return s == wire.Answers
	})
	if target == nil {
		return nil
	}
	found := false
	a.Walk(func(s wire.Section, r wire.Record) bool {
		owner, _, _ := wire.ReadName(nil, a.Buf, r.Owner)
		found = found || s == wire.Answers && wire.Lower(string(owner)) == wire.Lower(string(target))
		return s == wire.Answers
	})
	if found {
		return nil
	}
	return target
}
