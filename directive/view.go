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
	"github.com/seamark/seamark/wire"
)

// View restricts a server block to some queries: the view directive. Its reference page is
// docs/reference/directives/view.md.
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

	// Even after errors, since a block without its view would cause others.
	b.Chain.View, b.Chain.Match, b.Chain.ExplainMatch = v.name, v.match, v.explain

	metadata := func(q *dns.Query, key string) string { return v.metadata(q, key) }
	err := errors.Join(config.Once(uses), uses[0].Arity(1, 1), uses[0].Options(
		corefile.Option{Usage: "expr EXPRESSION...", Set: func(d corefile.Directive) error {
			e, err := expression.Condition(strings.Join(d.Words(), " "), expression.Names{Metadata: metadata})
			if err != nil {
				return d.Errorf("%w", err)
			}
			if e.Warning() != nil {
				b.Warn(d.Errorf("%w", e.Warning()))
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

	v.failures = b.Metrics.Counter("seamark_view_failures_total",
		"Queries for which the expression of a view could not be evaluated.", "view", v.name)
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
		v.log.Warn("view: Evaluating expression failed, query does not match",
			"view", v.name, "qname", wire.Name(q.Name()).String(), "client", q.Peer, "error", err)
	}
}

// Metadata returns the value of view/name.
func (v *View) Metadata(_ *dns.Query, key string) (value string, ok bool) {
	return v.name, key == "view/name"
}
