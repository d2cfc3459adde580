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

// Template answers queries with records generated from the query: the template
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
// A template applies to queries of CLASS and TYPE, either of which may be ANY,
// for names in ZONES; the default is the server block's zones. You can give
// template several times. The first one that matches answers, with AA set.
// Queries that no template applies to go to the directives below.
//
// match: at least one REGEX (https://golang.org/s/re2syntax) must match the
// name, which is in lower case with its final dot. Without match every name
// matches. You can give match several times; the first REGEX that matches is
// used.
//
// expr: EXPRESSION, the rest of the line as in the view directive, must be
// true. If you give expr several times, all must be true. EXPRESSION may also
// use the vars above it, and group('NAME') and group(N), the groups of the REGEX
// that matched, "" if it has no such group.
//
// fallthrough: a query that the template applies to but does not match goes to
// the next template and then to the directives below; with ZONES, only if its
// name is in one of them. Without fallthrough it is answered with SERVFAIL, and
// errors logs it.
//
// answer, additional, authority: each RR is one record as in a zone file, in
// quotes. You may omit the class, and the TTL, which is then 3600. An RR is a
// Go template (https://pkg.go.dev/text/template): the text between {{ and }} is
// evaluated for each query. An RR that evaluates to empty text adds nothing.
//
//	.Name      the name, in lower case with its final dot; special characters
//	           are escaped as in zone files
//	.Class     the class: IN
//	.Type      the type: A
//	.Zone      the zone of ZONES that contains the name
//	.Match     the match of REGEX: {{ index .Match 0 }} is all of it,
//	           {{ index .Match 1 }} its first group
//	.Group     the named groups of REGEX: {{ .Group.host }} is that of (?P<host>...)
//	.Regex     the REGEX that matched
//	.Remote    the client's address
//	.Question  the question: .Question.Name in the client's spelling,
//	           .Question.Qtype and .Question.Qclass as numbers
//	.Message   the query: .Message.Id, .Message.Opcode, .Message.Question, and the
//	           flags .Message.RecursionDesired, .Message.CheckingDisabled,
//	           .Message.AuthenticatedData and .Message.Zero
//	.Meta      a metadata value: {{ .Meta "kubernetes/namespace" }}
//	.Var       the values of var: {{ .Var.host }}
//	parseInt   a number from a string, a base and a bit size: {{ parseInt .Group.a 16 8 }}
//
// var: sets NAME to the value of EXPRESSION, which may have any type. As in
// expr, it may use groups and the vars above it.
//
// rcode: the response code, NOERROR by default. With SERVFAIL the answer has no
// records.
//
// ederror: an extended error (RFC 8914) for clients that use EDNS: its code, 0
// to 65535, and a text.
//
// If the answer section has a CNAME record but no record of its target, the
// CNAME is followed, unless the query type is CNAME or ANY: the target is
// resolved by a sub-query, and its records, its response code and, without
// records, its SOA become part of the answer. If no server block serves the
// target, the answer is the CNAME record alone.
//
// An RR without {{ is parsed when the Corefile is read, and an error in it is
// an error of the Corefile. So are unknown names in other RRs. If an RR cannot
// be evaluated or parsed for a query, the answer is SERVFAIL, and errors logs
// it.
//
// Metrics; zone is .Zone, class and type are the query's, or other:
//
//	coredns_template_matches_total{server, zone, view, class, type}
//	coredns_template_template_failures_total{server, zone, view, class, type, section, template}
//	coredns_template_rr_failures_total{server, zone, view, class, type, section, template}
//
// Every name of internal.example has one address and no other records:
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
// Names contain addresses, and PTR records lead back to the names:
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
// Only clients of one network get an answer, which contains a computed value:
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
// Names that only a search path can produce do not exist:
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
// records are followed for every type, not only for A and AAAA; .Message has
// only the header and the question; TYPE and CODE may be in any case; types
// without a name are other in metrics. Ours: an RR that evaluates to empty text
// adds nothing.
type Template struct {
	rules    []*rule
	answers  bool // a rule names a class other than IN
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
		t.answers = t.answers || r.class != wire.ClassIN && r.class != wire.ClassANY
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
func (t *Template) AnyClass() (answers bool) { return t.answers }

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
