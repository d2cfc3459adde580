package directive

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/expression"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// View restricts a server block to some queries: the view directive.
//
//	view NAME {
//	    expr EXPRESSION
//	}
//
// Use it to give clients different answers. Several server blocks may have the
// same zone if each but the last has a view. A query goes to the first of them,
// from top to bottom of the Corefile, whose EXPRESSION is true. A block without
// a view accepts every remaining query, so it must be the last. If no block
// accepts the query, it goes to the block of the next shorter zone, and is
// refused if there is none. NAME is the view label of metrics and the metadata
// value view/name. Blocks with the same zone and address must have different
// names.
//
// If you give expr several times, all expressions must be true. EXPRESSION is
// the rest of the line, in the language of
// https://expr-lang.org/docs/language-definition, with these functions:
//
//	bufsize()              size of the largest reply that the client accepts, in bytes
//	class()                'IN'
//	client_ip()            the client's address: '10.0.0.1', 'fd00::1'
//	do()                   true if the client requests DNSSEC records
//	id()                   the query's ID
//	incidr(IP, CIDR)       true if the address is in the prefix: '10.0.0.0/8'
//	metadata(KEY)          a metadata value, '' if there is none
//	name()                 the name, in lower case and with its final dot
//	opcode()               0 for a query
//	port()                 the client's port: '53012'
//	proto()                'udp' or 'tcp'
//	server_ip()            the address that received the query
//	server_port()          the port that received the query: '53'
//	size()                 the query's size in bytes
//	type()                 'A', 'AAAA', 'TYPE65280'
//
// The expression is evaluated for the query as received, before any directive
// of the block changes it. Sub-queries, such as one for the target of a CNAME,
// are evaluated on their own, with the client's address.
//
// Write strings in single quotes or in backquotes. A backslash between
// backquotes is an ordinary character. The Corefile uses double quotes itself,
// and # begins a comment there. It is an error of the Corefile if an EXPRESSION
// is not a condition, or has an unknown name, an argument of the wrong type, or
// an invalid constant address, prefix or regular expression. An expression that
// cannot be evaluated for a query counts as false. The server logs this at most
// once a minute for each view, and counts it:
//
//	seamark_view_failures_total{view}
//
// This server has one answer for the office and another for everyone else:
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
// Same as CoreDNS. Differs: types and constant arguments are checked when the
// Corefile is read.
type View struct {
	name       string
	conditions []*expression.Expression
	failures   *metrics.Counter
	metadata   expression.Metadata
	log        *slog.Logger
	lastLogged atomic.Int64 // minutes since the epoch
}

// SetupView sets up the view directive.
func SetupView(b *config.Block, uses []corefile.Directive) error {
	v := &View{log: b.Log}
	if len(uses[0].Args) > 0 {
		v.name = uses[0].Args[0].Text
	}
	b.Chain.View, b.Chain.Match, b.Chain.ExplainMatch = v.name, v.match, v.explain // even after errors, which would cause others
	metadata := func(q *dns.Query, key string) string { return v.metadata(q, key) }
	err := errors.Join(config.Once(uses), uses[0].Arity(1, 1), uses[0].Options(
		corefile.Option{Usage: "expr EXPRESSION...", Set: func(d corefile.Directive) error {
			e, err := expression.Condition(strings.Join(d.Words(), " "), expression.Names{Metadata: metadata})
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

// match reports whether q is for the view's server block.
func (v *View) match(q *dns.Query) bool {
	for _, e := range v.conditions {
		holds, err := e.True(q)
		if err != nil {
			v.failures.Add(1)
			v.logFailure(q, err)
		}
		if !holds {
			return false
		}
	}
	return true
}

// explain returns the value of each expression for q, up to the first that is not true.
func (v *View) explain(q *dns.Query) (causes []dns.Cause) {
	for _, e := range v.conditions {
		holds, err := e.True(q)
		text := fmt.Sprintf("the expression %s is %t", e, holds)
		if err != nil {
			text = fmt.Sprintf("the expression %s cannot be evaluated: %v", e, err)
		}
		causes = append(causes, dns.Cause{Text: text})
		if !holds {
			break
		}
	}
	return causes
}

// logFailure logs err unless an error was logged in this minute.
func (v *View) logFailure(q *dns.Query, err error) {
	minute := q.Now().Unix()/60 + 1 // zero is never
	if last := v.lastLogged.Load(); last != minute && v.lastLogged.CompareAndSwap(last, minute) {
		v.log.Warn("view: Evaluating expression failed, query does not match", "view", v.name, "qname", nameText(q.Name()), "client", q.Peer, "error", err)
	}
}

// Metadata returns the value of view/name.
func (v *View) Metadata(_ *dns.Query, key string) (value string, ok bool) {
	return v.name, key == "view/name"
}
