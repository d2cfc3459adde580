// Package zones answers queries from authoritative zones, for the directives that serve them.
package zones

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/zone"
)

// Answer answers q from z. It passes q on if the name does not exist and falls through. others are the
// zones of the directive, or nil. The handler's Resolve must call q.ResumeTarget.
func Answer(q *dns.Query, z *zone.Zone, others zone.Zones, through *config.Fallthrough) dns.Verdict {
	found := z.Lookup(&q.Request, &q.Answer, zone.Scope{Server: q, Zones: others})
	if found.Missing && through.Through(q.Name()) {
		q.Answer.Clear()
		return dns.Next
	}

	q.RCode, q.AA, q.AtCut = found.RCode, found.AA, found.AtCut
	if found.Target == nil {
		return dns.Done
	}
	return q.FollowTarget(found.Target)
}
