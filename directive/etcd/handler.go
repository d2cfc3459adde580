package etcd

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/wire"
)

// A Handler answers queries from SkyDNS messages in etcd: the etcd
// directive.
//
//	etcd [ZONES...] {
//	    fallthrough [ZONES...]         # pass queries for missing names to the next directive
//	    path PATH                      # prefix of the keys; /skydns
//	    endpoint ENDPOINT...           # URLs or HOST:PORT of etcd; http://localhost:2379
//	    credentials USERNAME PASSWORD  # a user of etcd
//	    tls [[CERT KEY] [CA]]          # files; the default CA is the system's
//	    min-lease-ttl DURATION         # lower bound of a TTL from a lease; 30s
//	    max-lease-ttl DURATION         # upper bound of a TTL from a lease; 24h
//	    no_apex_fallback               # the apex of a zone has only the records of apex.dns
//	    watch on|off                   # follow etcd, or read it for each query; on
//	    most KEYS                      # with more keys than this read etcd for each query; 1000000
//	    ttl SECONDS                    # TTL of messages without one; 300
//	    negative_ttl SECONDS           # TTL of negative answers; 30
//	    priority N                     # priority of messages without one; 10
//	    hostmaster NAME                # mailbox in SOA records; hostmaster in each zone
//	    local NAME                     # the name whose records local.dns in each zone has; none
//	    compatible skydns              # behave as SkyDNS where CoreDNS differs
//	}
//
// Use it once in a server block. Without ZONES it serves the zones of the block. DURATION
// may be a number of seconds; 0 is the default.
//
// # Keys and messages
//
// The key of rails.production.east.skydns.local is
// /skydns/local/skydns/east/production/rails, and the key of 125.1.0.10.in-addr.arpa is
// /skydns/arpa/in-addr/10/0/1/125. Write keys in lower case. The value is a JSON object:
//
//	host         an address or a name
//	port         of SRV records; 0
//	priority     of SRV and MX records; 0 means the option priority
//	weight       of SRV records; 0 means 100
//	text         a TXT record, split into strings of 255 bytes
//	mail         true: an MX record as well
//	ttl          seconds; limited by the remaining time of the key's lease
//	targetstrip  number of labels to remove from a target that is the name of the key
//	group        see below
//
// Unknown fields are ignored. A key with an empty object has no records. An invalid value,
// such as a host that is neither an address nor a name or a port out of range, is logged
// once with its key, and the key has no records.
//
// # Answers
//
// A name has the records of its key and of all keys below it. It exists if there are any
// keys.
//
//	A, AAAA   the hosts that are addresses; a host that is a name is a CNAME record,
//	          followed by the records of its target
//	TXT       the texts, and the texts of hosts that are names
//	SRV       each host: a name, or the name of the key of an address, with the
//	          addresses of the target
//	MX        the same, of messages with mail
//	CNAME     the host of the key itself, not of keys below it, if it is a name
//	PTR       the same
//	NS        at the apex of a zone: the names of the keys at and below ns.dns whose
//	          hosts are addresses, with these addresses
//	SOA       at the apex of a zone
//
// The apex of a zone has the addresses at apex.dns in the zone, or, if there are none, those
// of the whole zone. CNAME records are followed for up to eight names: inside ZONES by key,
// outside with a query to this server. A CNAME record is omitted if its target has no
// records, if it forms a loop or exceeds the limit, or if its target is below its own name.
// If no directive serves the target, the CNAME record is the answer. Several keys with
// names are several CNAME records of one name, as in SkyDNS and CoreDNS; common resolvers
// accept all addresses after them. For SRV and MX records, the addresses of up to eight
// targets outside ZONES are looked up.
//
// The weight of an SRV record is its percentage of the weights of its priority. Equal
// records appear once, and count once. All records of an RRset have the lowest of their TTLs.
// ANY returns one RRset. Transfers are refused.
//
// With group, an answer has only the messages with the group of the keys at the least depth,
// and those without a group. If keys at one depth have different groups, the answer has all
// messages.
//
// # etcd
//
// The directive lists all keys below PATH once and watches them: it answers from memory, and
// applies a change as soon as etcd reports it. Before the first list is complete, queries for
// names in ZONES get SERVFAIL, and ready reports that the server is not ready. While etcd is
// unreachable, the last state is served. The log has a line for each reason of the failure,
// and one when etcd has recovered. If etcd has compacted the changes since then, if the
// cluster is another one or if it has been restored from a backup, the directive lists the
// keys again and serves the old ones until the list is complete. Blocks with the same etcd
// and PATH share the keys. A reload that changes the options of etcd fails if the keys do not
// arrive within five seconds.
//
// With compatible skydns, the labels * and any in a query match any label; the TTLs are 3600
// and 60 by default, and SOA records have SkyDNS's timers; a host below its own name is a
// CNAME record; a CNAME record is omitted if its target has a single label and looking it up
// fails; names are not followed for TXT; PTR answers are not authoritative; the weight of
// an SRV record may be 0.
//
//	.:1053 {
//	    etcd skydns.local in-addr.arpa {
//	        path /skydns
//	        endpoint http://127.0.0.1:2379
//	        fallthrough in-addr.arpa
//	    }
//	    forward . 127.0.0.1:53
//	}
//
// Instead of SkyDNS, for an old cluster:
//
//	.:1053 {
//	    etcd cluster.local {
//	        endpoint http://127.0.0.1:4001
//	        compatible skydns
//	    }
//	    forward . 127.0.0.1:53
//	}
//
// These metrics have the label path: seamark_etcd_data_age_seconds (seconds since etcd last
// confirmed that the keys are current; -1 before that; above ten etcd is unreachable),
// seamark_etcd_keys, seamark_etcd_lists_total, seamark_etcd_events_total and
// seamark_etcd_failures_total.
//
// Same as CoreDNS: syntax, defaults, keys, messages, apex.dns and ns.dns. Different: CoreDNS
// reads etcd for each query, as watch off does; a key and the keys below it all have
// records; an invalid value does not affect other keys; a name that exists never gets
// NXDOMAIN; * and any match only themselves without compatible skydns; a text does not hide a
// host, nor a host a text; targetstrip changes names of keys, not hosts; chains have up to
// eight names, not eleven; SRV and MX targets have their IPv6 addresses; files of tls with
// http:// are an error. Not in CoreDNS: watch, most, ttl, negative_ttl, priority, hostmaster,
// local, compatible. stubzones, debug and upstream are accepted and ignored, as in CoreDNS.
type Handler struct {
	zones    []zoneInfo // most labels first
	ttl      uint32     // of messages without a TTL
	negative uint32     // of negative answers
	leaseMin uint32     // lower bound of TTLs from leases
	leaseMax uint32     // upper bound of TTLs from leases
	priority uint16     // of messages without a priority
	skydns   bool       // behave as SkyDNS where CoreDNS differs

	noApexFallback bool
	hostmaster     wire.Name // "" is hostmaster in each zone
	local          wire.Name // the name whose records local.dns in each zone has; "" is none
	through        config.Fallthrough

	index     *index
	keyReader keyReader
	direct    func() bool // reports whether each query reads etcd; nil if none does
	seed      maphash.Seed
	stateKey  dns.StateKey
}

// A zoneInfo is a zone that a handler serves.
type zoneInfo struct {
	name   wire.Name
	labels int
}

// A keyReader reads a key and the keys below it from etcd, for one query.
type keyReader interface {
	readKeys(ctx context.Context, key string) ([]keyValue, error)
}

// ServeDNS answers queries for names in the handler's zones.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	z := h.zone(q)
	switch {
	case z == nil:
		return dns.Next
	case q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR:
		q.Fail(wire.Refused)
		return dns.Done
	case h.readsEtcd():
		return dns.Wait
	}
	l := lookup{Handler: h, q: q, zone: z, index: h.index}
	return l.conclude(l.answer())
}

// Resolve answers queries that would block a reader for too long: because they need
// many keys, read etcd, or need sub-queries.
func (h *Handler) Resolve(ctx context.Context, q *dns.Query) error {
	l := lookup{Handler: h, q: q, zone: h.zone(q), index: h.index, ctx: ctx}
	if q.State(h.stateKey) != nil {
		l.prior = cloneResult(q.ResumeSubQuery(ctx))
	}
	if h.readsEtcd() {
		l.index, l.reader = h.index.newQueryIndex(), h.keyReader
		l.index.endList()
	}
	if l.conclude(l.answer()) == dns.Next {
		q.Next(ctx)
	}
	return nil
}

// readsEtcd reports whether each query reads etcd, because the index does not
// have the keys.
func (h *Handler) readsEtcd() bool { return h.direct != nil && h.direct() }

// Ready reports whether all keys have been listed once. It stays true while etcd
// is unreachable.
func (h *Handler) Ready() bool { return h.readsEtcd() || h.index.synced() }

// AuthoritativeZones returns the zones of h.
func (h *Handler) AuthoritativeZones() (zones []wire.Name) {
	for _, z := range h.zones {
		zones = append(zones, z.name)
	}
	return zones
}

// zone returns the zone with the most labels that contains the query name.
func (h *Handler) zone(q *dns.Query) *zoneInfo {
	name, labels := q.Name(), q.Labels()
	for i := range h.zones {
		z := &h.zones[i]
		if labels >= z.labels && string(name[q.LabelOffset(labels-z.labels):]) == string(z.name) {
			return z
		}
	}
	return nil
}

// serves reports whether name is in one of the handler's zones.
func (h *Handler) serves(name []byte) bool {
	for i := range h.zones {
		if wire.Within(name, h.zones[i].name) {
			return true
		}
	}
	return false
}

// ttlOf returns the TTL of m's records: the TTL of the message or, if less, the
// remaining time of its lease.
func (h *Handler) ttlOf(m *message, now time.Time) uint32 {
	if m.lease == nil {
		if m.ttl == 0 {
			return h.ttl
		}
		return m.ttl
	}
	left := h.leaseMin
	if ends := m.lease.expiry.Load(); ends != 0 {
		seconds := (ends - int64(clock.At(now))) / int64(time.Second)
		left = uint32(min(max(seconds, int64(h.leaseMin)), int64(h.leaseMax)))
	}
	if m.ttl == 0 {
		return left
	}
	return min(m.ttl, left)
}

// A set has the hashes of the records that have been written.
type set struct {
	few  [32]uint64
	n    int
	many map[uint64]struct{}
	last uint64 // the hash that was last passed to add
}

// add adds a record, and reports whether it was absent.
func (s *set) add(seed maphash.Seed, record []byte) (added bool) {
	sum := maphash.Bytes(seed, record)
	s.last = sum
	for _, old := range s.few[:min(s.n, len(s.few))] {
		if old == sum {
			return false
		}
	}
	if s.n++; s.n <= len(s.few) {
		s.few[s.n-1] = sum
		return true
	}
	if s.many == nil {
		s.many = map[uint64]struct{}{}
	}
	before := len(s.many)
	if s.many[sum] = struct{}{}; len(s.many) == before {
		s.n--
		return false
	}
	return true
}

// remove removes sum, which must be the last of the hashes in the set that was added.
func (s *set) remove(sum uint64) {
	if s.n > len(s.few) {
		delete(s.many, sum)
	}
	s.n--
}
