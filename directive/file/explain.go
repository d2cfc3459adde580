package file

import (
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
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
	if !a.serves(q.Name()) {
		return []dns.Cause{{Text: "the name is in none of the zones of the directive"}}
	}
	return a.dir.files.Load().ExplainDNS(q, v)
}
