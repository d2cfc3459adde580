package secondary

import (
	"fmt"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
)

// ExplainDNS implements [dns.Explainer].
func (s *Secondary) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	at, c := s.find(q, s.set())
	if at == nil {
		return []dns.Cause{{Text: "the name is in none of the zones of the directive"}}
	}
	z := c.current.Load()
	switch {
	case z == nil:
		return []dns.Cause{{Text: fmt.Sprintf("zone %s has no data: %v", c.origin, errNoData)}}
	case at.isCatalog && c == at.copy:
		return []dns.Cause{{Text: "the zone is a catalog, whose records are only transferred"}}
	}

	texts, near := z.Explain(q.Name(), q.Type, corefile.Nearest)
	c.mu.Lock()
	checked, until := c.checked, c.until
	c.mu.Unlock()
	if !checked.IsZero() {
		texts = append(texts, fmt.Sprintf("a primary has confirmed it %v ago; it expires in %v",
			time.Since(checked).Truncate(time.Second), time.Until(until).Truncate(time.Second)))
	}

	return dns.FallthroughCauses(v, texts, near)
}
