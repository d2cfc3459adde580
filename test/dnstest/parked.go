package dnstest

import (
	"context"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
)

const parkedName = "parked"

// parked is the first directive of every server block in the second run of each
// script. It parks every query and sub-query, so that the other handlers run on
// the goroutines of parked queries and not on the readers.
func parked() config.Directive {
	return config.Directive{
		Name:  parkedName,
		Setup: func(b *config.Block, _ []corefile.Directive) error { b.Handle(parkAll{}); return nil },
	}
}

// park adds the directive to every server block that has directives. Queries for
// a block without any are refused.
func park(servers []corefile.Server) {
	for i := range servers {
		if s := &servers[i]; len(s.Directives) > 0 {
			s.Directives = append([]corefile.Directive{{Token: corefile.Token{Text: parkedName}, Path: parkedName}},
				s.Directives...)
		}
	}
}

// parkAll has no ServeDNS, so it parks every query.
type parkAll struct{}

func (parkAll) Resolve(ctx context.Context, q *dns.Query) error { q.Next(ctx); return nil }

// AnyClass implements [dns.AnyClass]: parkAll handles queries of all classes and answers none.
func (parkAll) AnyClass() dns.ClassUse { return dns.ClassPassed }
