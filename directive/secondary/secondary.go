// Package secondary implements the secondary directive: copies of zones of other servers.
//
// A zoneCopy (copy.go) refreshes one zone from its primaries, by the timers of the SOA
// record and after NOTIFY messages. A client (client.go) transfers it, an incoming
// (incoming.go) checks the records and makes the new version, and save.go keeps it in a
// file. Secondary answers from the current version; package zone computes the answer.
//
// The zones are those of the Corefile, and the members of catalogs (catalog.go), which come
// and go with the records of a catalog zone (catalog_parse.go).
package secondary

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/internal/tsig"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A Secondary answers from copies of zones of other servers: the secondary directive.
//
//	secondary [ZONES...] {
//	    transfer from ADDRESS...
//	    file PATH
//	    key NAME
//	    catalog [MEMBER-ZONES...]
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
// REFRESH of the SOA record, or after RETRY if that failed; both are a second at
// least, and are shortened by up to a tenth at random. If no primary can be connected to or
// replies, as while it restarts, the next attempt is after 250ms, and then at intervals that
// double up to RETRY. BIND waits for RETRY each time. After the time EXPIRE without an
// answer of a primary, and before the first transfer, queries are answered with SERVFAIL.
// Without data, transfers are tried again after 250ms, and then at intervals that double
// up to 10s.
//
// A transfer is rejected as a whole if it does not begin and end with the SOA record of
// the zone, if it has more than 512 MB, if no message arrives for 30 seconds, or if after
// these it is slower than 1 KB per second on average. If differences are rejected or do not
// fit the copy, the whole zone is transferred. The old copy is served meanwhile until it
// expires. Records outside the zone are ignored. A serial number that is older than that of
// the copy is logged, and the copy stays. Transfers of whole zones are logged, those of
// differences at level debug.
//
// Differences cost as much as the names that they change, however large the zone is: a new
// version shares all other names with the old one. With the zone of a cluster of 10,000
// headless Services with 150,000 endpoints, a secondary needs 46 MB of memory if each Service
// has one port and 64 MB if it has three, where the primary needs 58 and 62 MB; 75 and 113 MB
// during the transfer of the whole zone; and 1 ms of CPU time and about 750 bytes for an endpoint
// that changes. A secondary waits four times as long as a
// transfer took, and at most a minute, before the next one. The zone as it is in memory must
// have 512 MB at most, too, whether it grew by differences or not. Differences of more than
// 64 MB are rejected.
//
// file writes the zone to PATH, at most every 30 seconds and when the server stops. When
// the server starts again it answers from PATH at once, unless the zone has expired. It
// can be used with a single zone. A relative PATH is relative to the directory of the
// directive root.
//
// key signs the queries to the primaries with a key of the directive tsig in the same
// server block, and rejects replies without a valid signature. To accept signed NOTIFY
// messages alone, use the option require_opcode of tsig.
//
// fallthrough passes queries for names that do not exist to the next directive: those in
// its ZONES, or all of them if it has none.
//
// catalog makes ZONES catalog zones (RFC 9432): lists of other zones, their members, that
// the primaries serve. The members are copied from the same primaries with the same options,
// and served as soon as the catalog lists them, until it does not any more. Only zones within
// the server block's zones are served, and with MEMBER-ZONES only these and zones below them:
// without it, the primaries can have any name answered. A zone is refused, which is logged, if
// a directive of the server block has it, or another catalog, unless that one's property coo
// permits the change. Other properties, such as group, have no effect. A zone whose member
// node has another label is transferred again. A catalog without version 2, with a zone or
// property coo twice, or with more than 10,000 members is broken, and rejected as a whole:
// the members stay, as they do when the catalog expires. At most 16 members are transferred
// at the same time. A reload of the Corefile keeps the zones of members that the catalog may
// have before and after it. The records of the members of all catalogs have 512 MB at most in common
// (names written out; in memory they need a few times as much). A new member beyond that is
// refused, which is logged; its queries are SERVFAIL, and the others are served. A new version
// of a member beyond that is refused, too, and the old one stays. A refused zone is
// transferred again when others have fewer records, after a NOTIFY message, and after ten
// minutes. With file, members are written to PATH.MEMBER, and the files of removed
// members are deleted. Queries for a catalog are refused, except for its SOA record, and for
// transfers that the directive transfer permits.
//
// With the directive transfer other servers can copy the zones from here.
//
//	example.org:1053 {
//	    secondary {
//	        transfer from 10.0.1.1 10.1.2.1:5300
//	        file /var/lib/seamark/example.org.zone
//	    }
//	}
//	. {
//	    secondary catalog.invalid {
//	        transfer from 10.0.1.1
//	        catalog example.com example.net
//	    }
//	    forward . /etc/resolv.conf
//	}
//
// Same as CoreDNS: syntax of transfer from, catalog and fallthrough. Differs: IXFR is used;
// file survives restarts; key signs queries; a zone expires; the answers are those of the
// directive file; queries for a catalog are refused; a catalog needs no NS record.
type Secondary struct {
	zones    map[wire.Name]*servedZone // of the Corefile
	static   *zoneSet                  // without members
	catalogs *catalogs                 // nil without catalogs; set at the start
}

// A servedZone is one zone of the Corefile.
type servedZone struct {
	options
	primaries []netip.AddrPort
	fallthru  *config.Fallthrough
	key       *tsig.Ref
	copy      *zoneCopy // set at the start

	memberOption
}

// options identify a zoneCopy across reloads.
type options struct {
	origin   wire.Name
	from     string // the primaries
	file     string
	catalogs *catalogs // of a catalog: those that it is updated with; else nil
}

// AuthoritativeZones returns the zones.
func (s *Secondary) AuthoritativeZones() []wire.Name {
	var zones []wire.Name
	for origin := range s.zones {
		zones = append(zones, origin)
	}
	return zones
}

// FindZone implements [dns.ZoneFinder]: it finds members of catalogs.
func (s *Secondary) FindZone(name []byte) int {
	if s.catalogs == nil {
		return 0
	}
	for members := s.set().members; ; name = name[1+name[0]:] {
		if has := members[wire.Name(name)]; has != nil && s.zones[has.catalog.origin] != nil {
			return len(name)
		}
		if name[0] == 0 {
			return 0
		}
	}
}

// FindsZones implements [zone.Finder].
func (s *Secondary) FindsZones() bool {
	for _, at := range s.zones {
		if at.isCatalog {
			return true
		}
	}
	return false
}

// HandlesNotify implements [dns.NotifyHandler].
func (s *Secondary) HandlesNotify() {}

// ServeDNS answers queries for names in the zones.
func (s *Secondary) ServeDNS(q *dns.Query) dns.Verdict {
	set := s.set()
	at, c := s.find(q, set)
	switch {
	case q.IsNotify():
		return s.notify(q, at, c)
	case at == nil:
		return dns.Next
	case q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR:
		q.Fail(wire.Refused)
		return dns.Done
	case at.isCatalog && c == at.copy && (q.Type != wire.TypeSOA || string(q.Name()) != string(c.origin)):
		q.Fail(wire.Refused) // it is data for servers, and may be confidential (RFC 9432 §7)
		return dns.Done
	}
	z := c.current.Load()
	if z == nil {
		q.Fail(wire.ServFail)
		q.Err = errNoData
		return dns.Done
	}
	found := z.Lookup(&q.Request, &q.Answer, zone.Scope{Server: q, Zones: set.origins})
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

// notify accepts a NOTIFY message for a zone from a primary. Without an error it replies
// NOTAUTH to the primary of a catalog for another zone: the zone may be a new member whose
// catalog has not been transferred yet.
func (s *Secondary) notify(q *dns.Query, at *servedZone, c *zoneCopy) dns.Verdict {
	switch {
	case at == nil || string(c.origin) != string(q.Name()):
		for _, at := range s.zones {
			if at.isCatalog && at.isPrimary(q.Peer.Addr()) {
				q.Fail(wire.NotAuth)
				return dns.Done
			}
		}
		return dns.Next
	case !at.isPrimary(q.Peer.Addr()):
		q.Fail(wire.Refused)
		return dns.Done
	}
	c.notify()
	q.AA = true
	return dns.Done
}

// isPrimary reports whether the zone is copied from an address.
func (s *servedZone) isPrimary(addr netip.Addr) bool {
	return slices.ContainsFunc(s.primaries, func(p netip.AddrPort) bool { return p.Addr().WithZone("") == addr.WithZone("") })
}

// Resolve waits for the answer to the sub-query for a CNAME target.
func (s *Secondary) Resolve(ctx context.Context, q *dns.Query) error {
	q.FollowCNAME(q.ResumeSubQuery(ctx))
	return nil
}

// set returns the current zones.
func (s *Secondary) set() *zoneSet {
	if s.catalogs == nil {
		return s.static
	}
	return s.catalogs.current.Load()
}

// find returns the longest zone that contains the query name, with its options, or nil. A
// member has the options of its catalog. DS records at a zone's own name belong to its parent
// (RFC 4035 §3.1.4.1), if s has that.
func (s *Secondary) find(q *dns.Query, set *zoneSet) (at *servedZone, c *zoneCopy) {
	name, labels := q.Name(), q.Labels()
	for i := max(0, labels-max(set.most, s.static.most)); i <= labels; i++ {
		origin := name[q.LabelOffset(i):]
		if found := s.zones[wire.Name(origin)]; found != nil {
			at, c = found, found.copy
		} else if has := set.members[wire.Name(origin)]; has != nil && s.zones[has.catalog.origin] != nil {
			at, c = s.zones[has.catalog.origin], has.copy
		} else {
			continue
		}
		if q.Type != wire.TypeDS || i > 0 {
			break
		}
	}
	return at, c
}

// Version implements [zone.Transferable].
func (s *Secondary) Version(origin wire.Name) zone.Version {
	var c *zoneCopy
	if at := s.zones[origin]; at != nil {
		c = at.copy
	} else if has := s.set().members[origin]; has != nil {
		c = has.copy
	}
	if c != nil {
		if z := c.current.Load(); z != nil {
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
	if s.catalogs != nil {
		stops = append(stops, s.catalogs.followers.Add(changed))
		for origin, has := range s.set().members {
			if has.copy.current.Load() != nil {
				changed(origin)
			}
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
