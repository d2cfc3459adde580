// Package secondary implements the secondary directive: copies of zones of other servers.
//
// A zoneCopy (copy.go) refreshes one zone from its primaries, by the timers of the SOA
// record and after NOTIFY messages. A client (client.go) transfers it, an incoming
// (incoming.go) checks the records and makes the new version, and save.go keeps it in a
// file. Secondary answers from the current version; package zone computes the answer.
package secondary

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A Secondary answers from copies of zones of other servers: the secondary directive.
//
//	secondary [ZONES...] {
//	    transfer from ADDRESS...
//	    file PATH
//	    fallthrough [ZONES...]
//	}
//
// ZONES are copied from the primaries in transfer from; the default is the server block's
// zones. The addresses are tried in order, at port 53 if they have none. You can repeat
// transfer from. Queries are answered as by the directive file.
//
// A zone is transferred when the server starts, with AXFR (RFC 5936). Later a primary is
// asked for its serial number, and if that is newer, the differences are transferred with
// IXFR (RFC 1995), or the whole zone if the primary does not have them. This happens
// after a NOTIFY message (RFC 1996) from the address of a primary, and after the time
// REFRESH of the SOA record, or after RETRY if no primary answered; both are a second at
// least, and are shortened by up to a tenth at random. After the time EXPIRE without an
// answer of a primary, and before the first transfer, queries are answered with SERVFAIL.
// Without data, transfers are tried again after 250ms, and then at intervals that double
// up to 10s.
//
// A transfer is rejected as a whole if it does not begin and end with the SOA record of
// the zone, if its differences do not fit the copy (then the whole zone is transferred),
// if it has more than 512 MB, or if no message arrives for 30 seconds. The old copy is
// served meanwhile. Records outside the zone are ignored. A serial number that is older
// than that of the copy is logged, and the copy stays.
//
// file writes the zone to PATH, at most every 30 seconds and when the server stops. When
// the server starts again it answers from PATH at once, unless the zone has expired. It
// can be used with a single zone. A relative PATH is relative to the directory of the
// directive root.
//
// fallthrough passes queries for names that do not exist to the next directive: those in
// its ZONES, or all of them if it has none.
//
// With the directive transfer other servers can copy the zones from here.
//
//	example.org:1053 {
//	    secondary {
//	        transfer from 10.0.1.1 10.1.2.1:5300
//	        file /var/lib/seamark/example.org.zone
//	    }
//	}
//
// Same as CoreDNS: syntax of transfer from and fallthrough. Differs: IXFR is used; file
// survives restarts; a zone expires; the answers are those of the directive file;
// catalog is not supported.
type Secondary struct {
	zones   map[wire.Name]*served
	origins map[wire.Name]struct{}
	most    int // labels of the longest zone
}

// A served is one zone of a Secondary.
type served struct {
	options
	primaries []netip.AddrPort
	fallthru  *config.Fallthrough
	copy      *zoneCopy // set at the start
}

// options identify a zoneCopy across reloads.
type options struct {
	origin wire.Name
	from   string // the primaries
	file   string
}

// AuthoritativeZones returns the zones.
func (s *Secondary) AuthoritativeZones() []wire.Name {
	var zones []wire.Name
	for origin := range s.zones {
		zones = append(zones, origin)
	}
	return zones
}

// HandlesNotify implements [dns.NotifyHandler].
func (s *Secondary) HandlesNotify() {}

// ServeDNS answers queries for names in the zones.
func (s *Secondary) ServeDNS(q *dns.Query) dns.Verdict {
	at := s.find(q)
	switch {
	case at == nil:
		return dns.Next
	case q.IsNotify():
		return at.notify(q)
	case q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR:
		q.Fail(wire.Refused)
		return dns.Done
	}
	z := at.copy.current.Load()
	if z == nil {
		q.Fail(wire.ServFail)
		q.Err = errNoData
		return dns.Done
	}
	found := z.Lookup(&q.Request, &q.Answer, zone.Scope{Server: q, Zones: s.origins})
	if found.Missing && at.fallthru.Through(q.Name()) {
		q.Answer.Clear()
		return dns.Next
	}
	q.RCode, q.AA = found.RCode, found.AA
	if found.Target == nil {
		return dns.Done
	}
	sub, ok := q.SubQuery(found.Target, q.Type)
	if !ok {
		return dns.Wait
	}
	q.FollowCNAME(sub)
	return dns.Done
}

var errNoData = errors.New("no primary has sent the zone, or it has expired")

// notify accepts a NOTIFY message from a primary.
func (s *served) notify(q *dns.Query) dns.Verdict {
	if string(s.origin) != string(q.Name()) {
		return dns.Next
	}
	if !slices.ContainsFunc(s.primaries, func(p netip.AddrPort) bool { return p.Addr().WithZone("") == q.Peer.Addr().WithZone("") }) {
		q.Fail(wire.Refused)
		return dns.Done
	}
	s.copy.notify()
	q.AA = true
	return dns.Done
}

// Resolve waits for the answer to the sub-query for a CNAME target.
func (s *Secondary) Resolve(ctx context.Context, q *dns.Query) error {
	q.FollowCNAME(q.ResumeSubQuery(ctx))
	return nil
}

// find returns the longest zone that contains the query name, or nil. DS records at a
// zone's own name belong to its parent (RFC 4035 §3.1.4.1), if s has that.
func (s *Secondary) find(q *dns.Query) (at *served) {
	name, labels := q.Name(), q.Labels()
	for i := max(0, labels-s.most); i <= labels; i++ {
		if found := s.zones[wire.Name(name[q.LabelOffset(i):])]; found != nil {
			if at = found; q.Type != wire.TypeDS || i > 0 {
				return at
			}
		}
	}
	return at
}

// Version implements [zone.Transferable].
func (s *Secondary) Version(origin wire.Name) zone.Version {
	if at := s.zones[origin]; at != nil {
		if z := at.copy.current.Load(); z != nil {
			return z
		}
	}
	return nil
}

// Follow implements [zone.Transferable].
func (s *Secondary) Follow(changed func(origin wire.Name)) (stop func()) {
	var stops []func()
	for origin, at := range s.zones {
		stops = append(stops, at.copy.followers.Add(changed))
		if at.copy.current.Load() != nil {
			changed(origin)
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
