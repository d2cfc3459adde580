package gateway

import (
	"cmp"
	"context"
	"encoding/binary"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/internal/zones"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// An External serves zones with published hosts to clients outside of the cluster: the gateway directive
// with the option external. Its reference page is docs/reference/directives/gateway.md.
type External struct {
	*settings
	byName wire.ZoneMap[int] // one more than the index of a zone
	source *source           // nil before the start
}

// Repetition reports that names in the zones depend on the objects.
func (x *External) Repetition() dns.Repetition {
	return dns.Repetition{Allows: func(q *dns.Query) bool { _, length := x.byName.LongestOf(q.Name()); return length == 0 }}
}

// AuthoritativeZones implements [dns.Authority].
func (x *External) AuthoritativeZones() []wire.Name { return x.zones }

// Ready reports whether the objects have been read once.
func (x *External) Ready() bool { return x.source == nil || x.source.synced.Happened() }

// find returns the zone that answers a query, nil if there is none.
func (x *External) find(q *dns.Query) *liveZone {
	if i := zones.Find(q, &x.byName); i > 0 {
		return x.source.zones.all[i-1]
	}
	return nil
}

// ServeDNS answers queries for names in the zones.
func (x *External) ServeDNS(q *dns.Query) dns.Verdict {
	z := x.find(q)
	if z == nil {
		return dns.Next
	}
	v := z.current.Load()
	switch {
	case v == nil:
		q.Fail(wire.ServFail)
		return dns.Done
	case q.Type.IsTransfer():
		q.Fail(wire.Refused)
		return dns.Done
	}
	return zones.Answer(q, v.Zone, &x.byName, &x.fallThrough)
}

// Resolve waits for the answer to the sub-query for a CNAME target.
func (x *External) Resolve(ctx context.Context, q *dns.Query) error { return q.ResumeTarget(ctx) }

// Version implements [zone.Transferable].
func (x *External) Version(origin wire.Name) zone.Version {
	if i := x.byName.Get(origin); i > 0 && x.source != nil {
		if v := x.source.zones.all[i-1].current.Load(); v != nil {
			return v
		}
	}
	return nil
}

// Follow implements [zone.Transferable].
func (x *External) Follow(changed func(origin wire.Name)) (stop func()) {
	stop = x.source.zones.followers.Add(changed)
	for _, origin := range x.zones {
		if x.Version(origin) != nil {
			changed(origin)
		}
	}
	return stop
}

// A liveZones has the zones of an External. The lock of the source guards what is not atomic.
type liveZones struct {
	*settings
	all       []*liveZone // in the order of the settings
	local     []netip.Addr
	followers zone.Followers
	serials   *zone.Serials
	now       func() time.Time
	served    bool // by the plan that answers
}

// A liveZone is a zone with a history.
type liveZone struct {
	origin  wire.Name
	current atomic.Pointer[version] // nil until the objects have been read
	records map[record]struct{}     // of current, without the SOA record
	memory  *memory.Claim           // of the journal
}

// A version of a liveZone. It is immutable.
type version struct {
	*zone.Zone
	journal zone.Journal
}

// Since implements [zone.Differ].
func (v *version) Since(serial uint32) (iter.Seq[[]byte], bool) {
	return v.journal.Since(serial, v.SOA())
}

// A record of a zone.
type record struct {
	owner wire.Name
	t     wire.Type
	rdata string
}

// A nameServer is that of the options apex and secondary.
type nameServer struct {
	labels  string // in front of the zone
	addrs   []netip.Addr
	service cluster.Key // that has its addresses, if none are given
}

func (s *settings) newZones(b *config.Block) *liveZones {
	x := &liveZones{settings: s, local: b.Addresses(), serials: zone.NewSerials(), now: time.Now}
	for _, origin := range s.zones {
		x.all = append(x.all, &liveZone{origin: origin, memory: b.Memory.Claim(memory.Zones)})
	}
	return x
}

// serve is called when the plan answers. The zones of the plan before may have changed since these exist,
// so they get the next serial numbers.
func (x *source) serve() {
	if x.zones == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.zones.served {
		return
	}
	x.zones.served = true
	for _, z := range x.zones.all {
		if z.current.Load() != nil {
			x.zones.show(z, nil, x.zones.serials.First(z.origin, x.zones.now()))
		}
	}
}

// Yield implements config.Yielder.
func (*source) Yield() {}

// Resume implements config.Yielder: the versions are greater than those of the other process.
func (x *source) Resume() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.zones == nil || !x.zones.served {
		return
	}
	for _, z := range x.zones.all {
		if z.current.Load() != nil {
			x.zones.show(z, z.records, x.zones.serials.Remaining(z.origin, x.zones.now()))
		}
	}
}

// update has the zones have what is published.
func (x *liveZones) update(p published, all state) {
	for _, z := range x.all {
		x.updateZone(z, x.recordsOf(z.origin, p, all))
	}
}

// recordsOf returns the records of a zone without the SOA record.
func (x *liveZones) recordsOf(origin wire.Name, p published, objects state) map[record]struct{} {
	all := map[record]struct{}{}
	addresses := func(owner wire.Name, addrs []netip.Addr) {
		for _, addr := range addrs {
			all[record{owner, [2]wire.Type{wire.TypeA, wire.TypeAAAA}[familyOf(addr)], string(addr.AsSlice())}] = struct{}{}
		}
	}

	for i, s := range x.servers {
		owner := origin.Join(s.labels)
		all[record{origin, wire.TypeNS, string(owner)}] = struct{}{}
		addresses(owner, x.addrsOf(s, i, objects))
	}

	for h, s := range p.hosts {
		owner, to := h.owner(), s.label.to
		if length := x.rules.ZoneOf([]byte(owner)); !owner.Within(origin) || x.zoneOf(owner) != origin || length == 0 {
			continue
		}
		addresses(owner, to.addrs)
		if to.alias != "" && owner != origin { // a CNAME record is alone (RFC 1034 §3.6.2)
			all[record{owner, wire.TypeCNAME, string(to.alias)}] = struct{}{}
		}
	}
	x.addDelegated(origin, all)
	return all
}

// delegatedText is the record of a delegated zone without hosts, as a character string.
const delegatedText = "\x17delegated in Kubernetes"

// addDelegated has the delegated zones below wildcards exist: a wildcard ends there (RFC 4592 §2.2), so that
// a namespace answers for no name in the zone of another one; and so it does in copies of the zone.
func (x *liveZones) addDelegated(origin wire.Name, all map[record]struct{}) {
	owners, wild := map[wire.Name]bool{}, map[wire.Name]bool{} // and the parents of wildcards
	for r := range all {
		owners[r.owner] = true
		if parent, ok := strings.CutPrefix(string(r.owner), "\x01*"); ok {
			wild[wire.Name(parent)] = true
		}
	}
	if len(wild) == 0 {
		return
	}

	for _, one := range x.rules.Zones() {
		if one == origin || owners[one] || x.zoneOf(one) != origin {
			continue
		}
		for parent := one; len(parent) > 1; {
			if parent = parent[1+parent[0]:]; wild[parent] {
				all[record{one, wire.TypeTXT, delegatedText}] = struct{}{}
				break
			}
		}
	}
}

// zoneOf returns the longest zone that a name is in, or "".
func (s *settings) zoneOf(name wire.Name) (longest wire.Name) {
	for _, origin := range s.zones {
		if name.Within(origin) && len(origin) > len(longest) {
			longest = origin
		}
	}
	return longest
}

// isServer reports whether a name is that of a name server of its zone.
func (s *settings) isServer(name wire.Name) bool {
	return slices.ContainsFunc(s.servers, func(n nameServer) bool { return name == s.zoneOf(name).Join(n.labels) })
}

// addrsOf returns the addresses of a name server: the given ones, or the addresses of a Service's load
// balancer. The first name server has the addresses that this server listens on if there are neither.
func (x *liveZones) addrsOf(s nameServer, i int, all state) []netip.Addr {
	if len(s.addrs) > 0 {
		return s.addrs
	}
	f := get[*cluster.Frontend](all, cluster.Services, s.service)
	if f != nil && f.Balancer != nil && len(f.Balancer.IPs) > 0 { // it may have host names only
		return f.Balancer.IPs
	}
	if i == 0 {
		return x.local
	}
	return nil
}

// updateZone makes a new version of a zone if its records differ.
func (x *liveZones) updateZone(z *liveZone, now map[record]struct{}) {
	before := z.current.Load()
	if before != nil && maps.Equal(now, z.records) {
		return
	}
	was := z.records
	z.records = now
	if before == nil {
		x.show(z, was, x.serials.First(z.origin, x.now()))
		return
	}
	last, _ := before.Serial()
	x.show(z, was, x.serials.Next(z.origin, last, x.now()))
}

// show makes a version of a zone the current one: with the records that it has now, after the records was;
// nil begins a new history.
func (x *liveZones) show(z *liveZone, was map[record]struct{}, serial uint32) {
	before := z.current.Load()
	b := zone.NewBuilder(z.origin)
	if before != nil {
		b = before.Edit()
		_ = b.RemoveRRset(string(z.origin), wire.TypeSOA) // the names are in the zone, and so none of these can fail
	}
	_ = b.Add(string(z.origin), wire.TypeSOA, x.ttl, x.soa(z.origin, serial))

	var removed, added []byte
	if before != nil {
		for r := range was {
			if _, has := z.records[r]; !has {
				_, _ = b.Remove(string(r.owner), r.t, r.rdata)
				removed = r.append(removed, x.ttl)
			}
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(z.records), compareRecords) { // so that equal zones have equal answers
		if _, had := was[r]; !had || before == nil {
			_ = b.Add(string(r.owner), r.t, x.ttl, r.rdata)
			added = r.append(added, x.ttl)
		}
	}

	v := &version{Zone: b.Zone()}
	if before != nil && was != nil {
		v.journal = before.journal.Then(before.SOA(), v.SOA(), slices.Clip(removed), slices.Clip(added))
	}
	v.journal = v.journal.Within(z.memory)
	z.current.Store(v)
	x.followers.Changed(z.origin)
}

func compareRecords(a, b record) int {
	return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.t, b.t), cmp.Compare(a.rdata, b.rdata))
}

func (r *record) append(buf []byte, ttl uint32) []byte {
	buf = wire.AppendRecordHeader(buf, string(r.owner), r.t, ttl, len(r.rdata))
	return append(buf, r.rdata...)
}

// soa returns the RDATA of a SOA record, with the times of the zones of kubernetes.
func (x *liveZones) soa(origin wire.Name, serial uint32) string {
	buf := []byte(origin.Join(x.servers[0].labels) + origin.Join("\x0ahostmaster"))
	for _, n := range [...]uint32{serial, 7200, 1800, 86400, x.ttl} {
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	return string(buf)
}
