package directive

import (
	"errors"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/internal/expression"
	"github.com/seamark/seamark/metrics"
)

// A View says which queries a server block is for, beside its zones: the view
// directive.
//
//	view NAME {
//	    expr EXPRESSION
//	}
//
// Several server blocks may have the same zone if each but the last has a view.
// A query goes to the first of them, from top to bottom of the Corefile, whose
// EXPRESSION is true for it. A block without a view takes what is left, so it
// stands last; if there is none, the query goes to the next shorter zone that is
// served, and is refused if there is none either. NAME is the view label of
// metrics and the metadata view/name; each block for a zone and address has its
// own.
//
// expr may be given several times, and then all of them must be true. EXPRESSION
// is the rest of the line, in the language of
// https://expr-lang.org/docs/language-definition, with these functions:
//
//	bufsize()              the largest reply that the client takes, in bytes
//	class()                'IN'
//	client_ip()            the client's address: '10.0.0.1', 'fd00::1'
//	do()                   whether the client asks for DNSSEC records
//	id()                   the query's ID
//	incidr(IP, CIDR)       whether the address is in the prefix: '10.0.0.0/8'
//	metadata(LABEL)        what the metadata directive knows, '' if nothing
//	name()                 the name, in lower case and with its final dot
//	opcode()               0 for a query
//	port()                 the client's port: '53012'
//	proto()                'udp' or 'tcp'
//	server_ip()            the address that was asked
//	server_port()          the port that was asked: '53'
//	size()                 the query's size in bytes
//	type()                 'A', 'AAAA', 'TYPE65280'
//
// It is judged by the query as it came, before anything in the block changes it.
// The further questions that an answer needs (the target of a CNAME) are judged
// by themselves, with the client's address.
//
// Write strings in single quotes, or in backquotes, where a backslash is just
// that: the Corefile takes double quotes for its own, and begins a comment at a
// #. An EXPRESSION that is neither true nor false, or has an unknown name or a
// malformed prefix or regular expression in it, is an error of the Corefile. One
// that cannot be evaluated for a query is false for it, and is counted:
//
//	seamark_view_failures_total{view}
//
// One answer for the office and another for the rest:
//
//	example.org:1053 {
//	    view office {
//	        expr incidr(client_ip(), '10.1.0.0/16') || incidr(client_ip(), 'fd00:1::/32')
//	        expr name() matches `^[a-z]+\.example\.org\.$`
//	    }
//	    whoami
//	}
//	example.org:1053 {
//	    log
//	    whoami
//	}
//
// Same as CoreDNS. Differs: types are checked when the Corefile is read, and so
// are constant prefixes.
type View struct {
	name       string
	conditions []*expression.Expression
	failures   *metrics.Counter
	metadata   expression.Metadata
}

// SetupView is the Setup of view.
func SetupView(b *config.Block, uses []corefile.Directive) error {
	v := &View{}
	if len(uses[0].Args) > 0 {
		v.name = uses[0].Args[0].Text
	}
	b.Chain.View, b.Chain.Match = v.name, v.match // even if there are errors: others would follow from them
	metadata := func(q *dns.Query, key string) string { return v.metadata(q, key) }
	err := errors.Join(config.Once(uses), uses[0].Arity(1, 1), uses[0].Options(
		corefile.Option{Name: "expr", Min: 1, Max: -1, Set: func(d corefile.Directive) error {
			e, err := expression.Condition(strings.Join(d.Words(), " "), metadata)
			if err != nil {
				return d.Errorf("%w", err)
			}
			v.conditions = append(v.conditions, e)
			return nil
		}},
	))
	if err == nil {
		err = corefile.String(&v.name)(uses[0])
	}
	if err != nil {
		return err
	}
	v.failures = b.Metrics.Counter("seamark_view_failures_total", "Queries for which the expression of a view could not be evaluated.", "view", v.name)
	b.Offer(v)
	b.OnPlanned(func() error {
		v.metadata = b.AnyMetadata()
		return nil
	})
	return nil
}

// match says whether q is for the view's server block.
func (v *View) match(q *dns.Query) bool {
	for _, e := range v.conditions {
		holds, err := e.True(q)
		if err != nil {
			v.failures.Add(1)
		}
		if !holds {
			return false
		}
	}
	return true
}

// Metadata knows view/name.
func (v *View) Metadata(_ *dns.Query, key string) (value string, ok bool) {
	return v.name, key == "view/name"
}
