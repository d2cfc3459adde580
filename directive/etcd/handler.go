package etcd

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Handler answers from SkyDNS's messages in etcd: the etcd directive.
//
//	etcd [ZONES...] {
//	    fallthrough [ZONES...]         # names that do not exist are asked of the next handler
//	    path PATH                      # what the keys begin with; /skydns
//	    endpoint ENDPOINT...           # etcd's URLs or HOST:PORT; http://localhost:2379
//	    credentials USERNAME PASSWORD  # who asks
//	    tls [[CERT KEY] [CA]]          # files; without CA the system's
//	    min-lease-ttl DURATION         # what a lease makes of a TTL is not less; 30s
//	    max-lease-ttl DURATION         # nor more; 24h
//	    no_apex_fallback               # a zone's own name has what is at apex.dns in it and nothing else
//	    watch on|off                   # follow etcd, or ask it for each question; on
//	    most KEYS                      # with more keys than this each question is asked of etcd; 1000000
//	    ttl SECONDS                    # of messages without one; 300
//	    negative_ttl SECONDS           # of what is not there; 30
//	    priority N                     # of messages without one; 10
//	    hostmaster NAME                # in SOA records; hostmaster in each zone
//	    local NAME                     # what local.dns in each zone stands for; nothing
//	    compatible skydns              # what SkyDNS does and CoreDNS does not
//	}
//
// It can stand once in a server block. Without ZONES it serves the block's own. DURATION
// may be a number of seconds; 0 is the default.
//
// # Keys and messages
//
// The key of rails.production.east.skydns.local is
// /skydns/local/skydns/east/production/rails, and that of 125.1.0.10.in-addr.arpa
// /skydns/arpa/in-addr/10/0/1/125. Keys are in lower case. The value is JSON:
//
//	host         an address or a name
//	port         of SRV records; 0
//	priority     of SRV and MX records; 0 is the option priority
//	weight       of SRV records; 0 counts 100
//	text         a TXT record, in strings of 255 bytes
//	mail         true: a MX record, too
//	ttl          seconds; of a key with a lease what is left of that, if it is less
//	targetstrip  how many labels to leave out of a target made of the key
//	group        see below
//
// Fields of other names mean nothing, and neither does an empty object. A value that
// is no message, such as one with a host that is neither an address nor a name or with
// a port out of range, is one warning with its key, and answers nothing.
//
// # Answers
//
// A name has what is at its key and at all keys below. It exists if there is any.
//
//	A, AAAA   the hosts that are addresses; a host that is a name is a CNAME record,
//	          with what that name has behind it
//	TXT       the texts, and those of hosts that are names
//	SRV       each host: a name, or the name of the key of an address, with the
//	          target's addresses
//	MX        likewise, of messages with mail
//	CNAME     the host of the key itself, and of no key below, if it is a name
//	PTR       likewise
//	NS        of a zone's own name: the names of the keys at ns.dns in the zone and below
//	          that have addresses for hosts, and those
//	SOA       of a zone's own name
//
// A zone's own name has the addresses at apex.dns in it, and those of the whole zone
// only if there are none there. CNAME records lead on for up to eight names: in ZONES by
// the keys, elsewhere by asking this server. One that leads to nothing, to itself, too
// far, or to what is below its own name, is left out; one whose target nobody here serves
// is the answer. Several keys with names are several CNAME records of one name, as in
// SkyDNS and CoreDNS; the usual resolvers take all addresses behind them. For SRV and MX
// the addresses of up to eight targets elsewhere are looked up.
//
// A SRV record's weight is its part of a hundred among those of its priority. Equal
// records are one, and those of one name and type have the least TTL among theirs. ANY
// gets one set of records. Transfers are REFUSED.
//
// With group, an answer has the group of the shallowest of its keys alone, and keys
// without a group; if those of one depth do not agree it has all.
//
// # etcd
//
// All keys below PATH are listed once, and watched: answers come from memory, and a
// change is seen as soon as etcd tells it. Before the first list names in ZONES are
// SERVFAIL, and ready waits. While etcd is away the last state is served, and the log has
// one line when that begins and one when it ends. If etcd has dropped the changes since
// then, is another one or has been set back, the keys are listed anew, and the old ones
// are served until that is done. Blocks with the same etcd and PATH share the keys. A
// reload that changes where etcd is fails if the keys do not come within five seconds.
//
// compatible skydns: labels * and any in a question stand for any one label; TTLs are 3600
// and 60 unless given, and SOA records have SkyDNS's numbers; a host below the name that
// it stands for is a CNAME record; names are not followed for TXT; PTR answers are not
// authoritative; a SRV weight may be 0.
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
// SkyDNS itself, for an old cluster:
//
//	.:1053 {
//	    etcd cluster.local {
//	        endpoint http://127.0.0.1:4001
//	        compatible skydns
//	    }
//	    forward . 127.0.0.1:53
//	}
//
// Metrics, with the path: seamark_etcd_data_age_seconds, which is how long ago etcd said
// last that there is nothing else (-1 is never; above ten seconds it is away),
// seamark_etcd_keys, seamark_etcd_lists_total, seamark_etcd_events_total and
// seamark_etcd_failures_total.
//
// Same as CoreDNS: syntax, defaults, keys, messages, apex.dns and ns.dns. Differs: CoreDNS
// asks etcd for each question, and so does watch off here; a key and the keys below it
// both answer; one value that is no message does not fail the others; a name that exists
// is never NXDOMAIN for some types only; * and any stand for themselves unless
// compatible skydns is given; texts do not hide a host, nor a host a text; targetstrip
// changes names made of keys, not hosts; eight names and not eleven in a row; SRV and MX
// targets have their IPv6 addresses; files of tls with http:// are an error. Ours: watch, most, ttl, negative_ttl, priority,
// hostmaster, local, compatible. stubzones, debug and upstream may be given and mean
// nothing, as there.
type Handler struct {
	zones    []zoneInfo // longest first
	ttl      uint32     // of messages without one
	negative uint32     // of what is not there
	leaseMin uint32     // what a lease makes of a TTL is not less,
	leaseMax uint32     // nor more
	priority uint16     // of messages without one
	skydns   bool       // what SkyDNS does and CoreDNS does not

	noApexFallback bool
	hostmaster     wire.Name // "" is hostmaster in each zone
	local          wire.Name // what local.dns of each zone stands for; "" is none
	through        config.Fallthrough

	index  *index
	asker  asker
	unheld func() bool // the index does not have the keys; nil is that it has
	seed   maphash.Seed
	word   dns.StateKey
}

// A zoneInfo is one zone that a handler serves.
type zoneInfo struct {
	name   wire.Name
	labels int
}

// An asker reads the keys at one and below it, for one question.
type asker interface {
	ask(ctx context.Context, key string) ([]keyValue, error)
}

// ServeDNS answers what is in the handler's zones.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	z := h.zone(q)
	switch {
	case z == nil:
		return dns.Next
	case q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR:
		q.Fail(wire.Refused)
		return dns.Done
	case h.asks():
		return dns.Wait
	}
	l := lookup{Handler: h, q: q, zone: z, x: h.index}
	return l.conclude(l.answer())
}

// Resolve answers what a reader should not: questions for many keys, those that
// etcd has to be asked for, and those that lead to names which others must be asked
// for.
func (h *Handler) Resolve(ctx context.Context, q *dns.Query) error {
	l := lookup{Handler: h, q: q, zone: h.zone(q), x: h.index, ctx: ctx}
	if q.State(h.word) != nil {
		l.before = foundIn(q.ResumeSubQuery(ctx))
	}
	if h.asks() {
		l.x, l.from = h.index.beside(), h.asker
		l.x.end()
	}
	if l.conclude(l.answer()) == dns.Next {
		q.Next(ctx)
	}
	return nil
}

// asks says whether each question is asked of etcd, because the index does not have
// the keys.
func (h *Handler) asks() bool { return h.unheld != nil && h.unheld() }

// Ready says whether all keys have been seen once. It stays so while etcd is away.
func (h *Handler) Ready() bool { return h.asks() || h.index.synced() }

// zone finds the longest zone that the question is in.
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

// serves says whether a name is in one of the handler's zones.
func (h *Handler) serves(name []byte) bool {
	for i := range h.zones {
		if wire.Within(name, h.zones[i].name) {
			return true
		}
	}
	return false
}

// ttlOf is the TTL of m's records: the message's own, or what is left of its lease
// if that is less.
func (h *Handler) ttlOf(m *message, now time.Time) uint32 {
	if m.lease == nil {
		if m.ttl == 0 {
			return h.ttl
		}
		return m.ttl
	}
	left := h.leaseMin
	if ends := m.lease.ends.Load(); ends != 0 {
		seconds := (ends - now.UnixNano()) / int64(time.Second)
		left = uint32(min(max(seconds, int64(h.leaseMin)), int64(h.leaseMax)))
	}
	if m.ttl == 0 {
		return left
	}
	return min(m.ttl, left)
}

// A set is records that have been written, by their hashes.
type set struct {
	few  [32]uint64
	n    int
	many map[uint64]struct{}
	last uint64 // what add has been asked for last
}

// add puts a record in, and says whether it was not there.
func (s *set) add(seed maphash.Seed, record []byte) (fresh bool) {
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

// forget takes out what has been put in last, of what is left.
func (s *set) forget(sum uint64) {
	if s.n > len(s.few) {
		delete(s.many, sum)
	}
	s.n--
}
