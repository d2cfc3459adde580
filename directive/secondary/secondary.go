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
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/tsig"
	"github.com/seamark/seamark/directive/internal/zones"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A Secondary answers from copies of zones of other servers: the secondary directive. Its
// reference page is docs/reference/directives/secondary.md.
type Secondary struct {
	zones    wire.ZoneMap[*servedZone] // of the Corefile
	static   *zoneSet                  // without members
	catalogs *catalogs                 // nil without catalogs; set at the start
	server   *server                   // set at the start
	started  atomic.Bool
}

// A servedZone is one zone of the Corefile.
type servedZone struct {
	options
	primaries []netip.AddrPort
	fallthru  *config.Fallthrough
	key       *tsig.Ref
	maxSize   int64         // bytes of memory; 0 is maxBytes
	interval  time.Duration // of follow
	expires   time.Duration
	use       corefile.Directive
	copy      *zoneCopy // set at the start
	shared    *sharedZone

	memberOption
}

// A sharedZone is what the server blocks of one plan say of a copy. Those with other addresses may have the
// same zone, and share its copy.
type sharedZone struct {
	first *servedZone
	sends bool // a transfer of one of the blocks sends it
}

// Stop implements config.Stopper.
func (*sharedZone) Stop() {}

// share adds a block.
func (z *sharedZone) share(at *servedZone, b *config.Block) error {
	one := z.first
	if one.key.Name != at.key.Name || one.maxSize != at.maxSize || one.interval != at.interval || one.expires != at.expires {
		return at.use.Errorf("another server block has other options for the copy of %s (line %d): use the same ones",
			at.origin, one.use.Line)
	}
	z.sends = z.sends || slices.ContainsFunc(config.Find[zone.Transferrer](b), func(t zone.Transferrer) bool {
		return t.Transfers(at.origin)
	})
	return nil
}

// options identify a zoneCopy across reloads.
type options struct {
	origin   wire.Name
	from     string // the primaries
	file     string
	catalogs *catalogs // of a catalog: those that it is updated with; else nil
}

// firstAttempt is how long the first transfer of a zone may keep the server from being ready: without the
// zone it answers the queries for others.
const firstAttempt = 10 * time.Second

// minAttempt is how long a reload waits for the zones of a server block at least.
const minAttempt = time.Second

// Ready reports whether each zone of the Corefile has been transferred, loaded or looked for once, and
// whether the members of catalogs that another process or a file has are served.
func (s *Secondary) Ready() bool { return s.Unready() == "" }

// Unready returns why s is not ready, or "".
func (s *Secondary) Unready() string {
	if !s.started.Load() {
		return "not started"
	}
	for origin, at := range s.zones.All() {
		if c := at.copy; !c.isTried() && time.Since(c.made) < firstAttempt {
			return "no primary of " + origin.String() + " has answered yet"
		}
	}
	for origin, has := range s.set().members {
		if !has.copy.loaded.Load() {
			return "the member " + origin.String() + " is not loaded yet"
		}
	}
	return ""
}

// isTried reports whether c.tried is closed.
func (c *zoneCopy) isTried() bool {
	select {
	case <-c.tried:
		return true
	default:
		return false
	}
}

// awaitZones blocks until each zone is served, or looked for once. The server blocks of a plan share the time
// firstAttempt; one that starts when the others have used it up has minAttempt.
func (s *Secondary) awaitZones(start *config.Start) error {
	timer := time.NewTimer(max(minAttempt, time.Until(s.server.awaitUntil(start))))
	defer timer.Stop()
	for _, at := range s.zones.All() {
		select {
		case <-at.copy.tried:
		case <-timer.C:
			return nil
		case <-start.Context.Done():
			return start.Context.Err()
		}
	}
	return nil
}

// AuthoritativeZones returns the zones.
func (s *Secondary) AuthoritativeZones() []wire.Name { return s.zones.Zones() }

// FindZone implements [dns.ZoneFinder]: it finds members of catalogs.
func (s *Secondary) FindZone(name []byte) int {
	if s.catalogs == nil {
		return 0
	}
	for members := s.set().members; ; name = name[1+name[0]:] {
		if has := members[wire.Name(name)]; has != nil && s.zones.Get(has.catalog.origin) != nil {
			return len(name)
		}
		if name[0] == 0 {
			return 0
		}
	}
}

// FindsZones implements [zone.Finder].
func (s *Secondary) FindsZones() bool {
	for _, at := range s.zones.All() {
		if at.isCatalog {
			return true
		}
	}
	return false
}

// Repetition reports that names in the zones depend on their versions. Any name may be in the next member of a
// catalog.
func (s *Secondary) Repetition() dns.Repetition {
	return dns.Repetition{Allows: func(q *dns.Query) bool {
		at, _ := s.find(q, s.set())
		return at == nil && s.catalogs == nil
	}}
}

// Opcodes implements [dns.OpcodeHandler].
func (s *Secondary) Opcodes() []int { return []int{wire.OpcodeNotify} }

// ServeDNS answers queries for names in the zones.
func (s *Secondary) ServeDNS(q *dns.Query) dns.Verdict {
	set := s.set()
	at, c := s.find(q, set)
	switch {
	case q.Opcode() == wire.OpcodeNotify:
		return s.notify(q, at, c)
	case at == nil || q.Opcode() != 0:
		return dns.Next
	case q.Type.IsTransfer():
		q.Fail(wire.Refused)
		return dns.Done
	case at.isCatalog && c == at.copy && (q.Type != wire.TypeSOA || string(q.Name()) != string(c.origin)):
		q.Fail(wire.Refused) // it is data for servers, and may be confidential (RFC 9432 §7)
		return dns.Done
	}

	z := c.current.Load()
	if z == nil && at.interval > 0 {
		return dns.Next
	}
	if z == nil {
		q.Fail(wire.ServFail)
		q.Err = errNoData
		return dns.Done
	}

	return zones.Answer(q, z, &set.zones, at.fallthru)
}

var errNoData = errors.New("no primary has sent the zone, or it has expired")

// notify accepts a NOTIFY message for a zone from a primary. Without an error it replies
// NOTAUTH to the primary of a catalog for another zone: the zone may be a new member whose
// catalog has not been transferred yet.
func (s *Secondary) notify(q *dns.Query, at *servedZone, c *zoneCopy) dns.Verdict {
	switch {
	case at == nil || string(c.origin) != string(q.Name()):
		for _, at := range s.zones.All() {
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
	return slices.ContainsFunc(s.primaries, func(p netip.AddrPort) bool {
		return p.Addr().WithZone("") == addr.WithZone("")
	})
}

// Resolve waits for the answer to the sub-query for a CNAME target.
func (s *Secondary) Resolve(ctx context.Context, q *dns.Query) error { return q.ResumeTarget(ctx) }

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
	for i := max(0, labels-max(set.zones.MaxLabels(), s.zones.MaxLabels())); i <= labels; i++ {
		origin := name[q.LabelOffset(i):]
		if found := s.zones.Get(wire.Name(origin)); found != nil {
			at, c = found, found.copy
		} else if has := set.members[wire.Name(origin)]; has != nil && s.zones.Get(has.catalog.origin) != nil {
			at, c = s.zones.Get(has.catalog.origin), has.copy
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
	if at := s.zones.Get(origin); at != nil {
		c = at.copy
	} else if has := s.set().members[origin]; has != nil {
		c = has.copy
	}
	if c == nil {
		return nil
	}
	return c.version()
}

// Follow implements [zone.Transferable].
func (s *Secondary) Follow(changed func(origin wire.Name)) (stop func()) {
	var stops []func()
	for origin, at := range s.zones.All() {
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
