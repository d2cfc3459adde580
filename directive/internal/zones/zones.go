// Package zones answers queries from authoritative zones, for the directives that serve them.
package zones

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// Find returns the value of the longest zone that contains the query name. DS records at a zone's own name
// belong to its parent (RFC 4035 §3.1.4.1), if that is among the zones.
func Find[V comparable](q *dns.Query, all *wire.ZoneMap[V]) V {
	found, at := all.Longest(&q.Request, 0)
	if q.Type == wire.TypeDS && at == 0 {
		var none V
		if parent, _ := all.Longest(&q.Request, 1); parent != none {
			return parent
		}
	}
	return found
}

// Serials returns the serial numbers of the process, for zones that change while they are served.
func Serials(s *config.Start) *zone.Serials {
	serials, _ := config.Keep(s, nil, func() (*zone.Serials, error) {
		if s.Saved == nil {
			return zone.NewSerials(), nil
		}
		f := s.Data((*zone.Serials)(nil).StateName())
		if f == nil {
			return zone.LoadSerials(nil), nil
		}
		defer f.Close()
		return zone.LoadSerials(f), nil
	})
	return serials
}

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
