package file

import (
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// ExplainDNS implements [dns.Explainer].
func (f *File) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	s := f.find(q)
	if s == nil {
		return []dns.Cause{{Text: "the name is in none of the zones of the directive"}}
	}
	texts, near := s.zone().Explain(q.Name(), q.Type, corefile.Nearest)
	texts[len(texts)-1] += ", from " + s.source.path
	return dns.FallthroughCauses(v, texts, near)
}

// ExplainDNS implements [dns.Explainer].
func (a *Auto) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	for _, o := range a.origins {
		if wire.Within(q.Name(), o) {
			return a.dir.files.Load().ExplainDNS(q, v)
		}
	}
	return []dns.Cause{{Text: "the name is in none of the zones of the directive"}}
}
