package secondary

import (
	"fmt"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/zone"
)

// ExplainDNS implements [dns.Explainer].
func (s *Secondary) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	at, c := s.find(q, s.set())
	if at == nil {
		return []dns.Cause{{Text: "the name is in none of the zones of the directive"}}
	}
	z := c.current.Load()
	switch {
	case z == nil && at.interval > 0 && v == dns.Next:
		return []dns.Cause{{Text: fmt.Sprintf("zone %s has no data yet, or has expired: the directives below answer", c.origin)}}
	case z == nil:
		return []dns.Cause{{Text: fmt.Sprintf("zone %s has no data: %v", c.origin, errNoData)}}
	case at.isCatalog && c == at.copy:
		return []dns.Cause{{Text: "the zone is a catalog, whose records are only transferred"}}
	}

	texts, near := z.Explain(q.Name(), q.Type, corefile.Nearest)
	texts = append(texts, c.explainAge(z, at.interval > 0)...)

	return dns.FallthroughCauses(v, texts, near)
}

// Metadata returns the value of zone/wildcard.
func (s *Secondary) Metadata(q *dns.Query, key string) (value string, ok bool) {
	at, c := s.find(q, s.set())
	if at == nil {
		return "", false
	}
	if z := c.current.Load(); z != nil {
		return z.Metadata(q.Name(), key)
	}
	return "", false
}

// explainAge says how old a version is, and where the next one comes from if the copy follows a primary.
func (c *zoneCopy) explainAge(z *zone.Zone, follows bool) (texts []string) {
	c.mu.Lock()
	checked, since, until := c.checked, c.since, c.until
	c.mu.Unlock()

	ago := func(t time.Time) time.Duration { return time.Since(t).Truncate(time.Second) }
	if !checked.IsZero() {
		texts = append(texts, fmt.Sprintf("a primary has confirmed it %v ago; it expires in %v",
			ago(checked), time.Until(until).Truncate(time.Second)))
	}
	if !follows {
		return texts
	}

	serial, _ := z.Serial()
	where := "no primary is followed at present"
	if from := c.followed.Load(); from != nil {
		where = fmt.Sprintf("the next one comes from %v", *from)
	}
	return append(texts, fmt.Sprintf("the version %d has been served for %v; %s", serial, ago(since), where))
}
