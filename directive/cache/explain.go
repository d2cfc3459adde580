package cache

import (
	"bytes"
	"fmt"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// ExplainDNS implements [dns.Explainer]. It describes the stored answers for the name and
// the type, whatever the query's flags.
func (c *Cache) ExplainDNS(q *dns.Query, v dns.Verdict) (causes []dns.Cause) {
	if !c.applies(q) {
		return []dns.Cause{{Text: "the name is in none of the zones of the directive"}}
	}

	now := c.store.clock(time.Now())
	for e := range c.entries() {
		asked := e.t == q.Type && e.class == q.Class && bytes.Equal(e.name(), q.Name())
		if asked && now < e.expires+e.staleFor() {
			causes = append(causes, dns.Cause{Text: e.describe(now)})
		}
	}

	if causes == nil {
		return []dns.Cause{{Text: "no answer for the name and the type is stored"}}
	}
	if v == dns.Next {
		const used = "it is used if a directive below would have to wait for another server"
		causes = append(causes, dns.Cause{Text: used})
	}
	return causes
}

// describe describes an entry of the table.
func (e *entry) describe(now time.Duration) string {
	kind := [...]string{success: "positive answer", denial: "negative answer", failure: "failure"}[e.kind()]
	if e.kind() == denial {
		kind += " (NODATA)"
		if e.rcode == wire.NXDomain {
			kind = "negative answer (NXDOMAIN)"
		}
	}

	text := fmt.Sprintf("a %s has been stored for %v", kind, (now - e.stored()).Truncate(time.Second))
	if now < e.expires {
		return text + fmt.Sprintf(", and expires in %v", (e.expires-now).Truncate(time.Second))
	}
	return text + fmt.Sprintf("; it expired %v ago, and may be served stale for %v more",
		(now-e.expires).Truncate(time.Second), (e.expires+e.staleFor()-now).Truncate(time.Second))
}
