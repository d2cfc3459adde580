// Package cache keeps the answers of other servers: the cache directive. One
// Store holds those of all server blocks, as bytes, and outlives reloads. What
// this server knows by itself is never in it.
package cache

import (
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A Cache keeps the answers of other servers: the cache directive.
//
//	cache [TTL] [ZONES...] {
//	    success CAPACITY [TTL] [MINTTL]
//	    denial CAPACITY [TTL] [MINTTL]
//	    prefetch AMOUNT [[DURATION] [PERCENT%]]
//	    serve_stale [DURATION] [immediate [REPLYTTL [RECHECK]]]
//	    serve_stale [DURATION] [verify [TIMEOUT [REPLYTTL [RECHECK]]]]
//	    serve_stale_policy prefer_positive
//	    servfail DURATION
//	    disable success|denial [ZONES...]
//	    keepttl
//	}
//
// What came from another server, by forward for example, is kept, and answers
// the same question until its TTL has run down. What this server knows by
// itself (kubernetes, hosts, file, template ...) is never kept and always has
// the first word, so that a change shows at once, even for a name that another
// server has denied a moment ago; it is as cheap to look up as an entry.
//
// It can stand once in a server block. ZONES are those that it is for, the
// block's own unless given. There, TTLs of all answers are brought between
// MINTTL and TTL. TTL, in seconds, is for both kinds of answers.
//
// An answer with records is kept for the least of their TTLs. NXDOMAIN, and that
// there is nothing of a type, are kept for the TTL or the MINIMUM of the zone's
// SOA record, whichever is less (RFC 2308), also behind aliases. Not kept are
// truncated answers, answers with records that do not belong to the question,
// denials without a SOA record, referrals, and response codes other than
// NOERROR, NXDOMAIN and SERVFAIL. Questions share an entry if name, type, class,
// the bits RD, CD and DO, the options of EDNS that are sent on (client subnet)
// and the view are the same.
//
// Equal questions that are under way at the same time are asked once.
//
//   - success: how many answers with records are kept, 9984; the most, 3600,
//     and the least, 5, that a TTL may be. 0 keeps none.
//   - denial: the same for NXDOMAIN, no data and SERVFAIL; 9984, 1800, 5.
//   - prefetch: an entry that was asked AMOUNT times, no two of them DURATION
//     (1m) or more apart, is asked for anew when PERCENT (10%, of 10% to 90%)
//     of its time are left, or a second. No client waits for it. 0, the
//     default, is never.
//   - serve_stale: answers are of use for DURATION (1h) after their end, with a
//     TTL of REPLYTTL (0s) and the extended error 3, or 19 for NXDOMAIN.
//     immediate, the default, gives them out at once and asks for a new one
//     meanwhile. verify asks first, and gives them out if there is no answer,
//     or SERVFAIL, REFUSED or the like, or none within TIMEOUT (0, the default,
//     is no bound). If a new answer cannot be had the next attempt is RECHECK
//     later, at least one second. SERVFAIL never takes the place of an answer
//     that can still be given out.
//   - serve_stale_policy prefer_positive: records that can be given out by
//     serve_stale come before a later NXDOMAIN, too. Otherwise they are gone
//     then (RFC 8767).
//   - servfail: how long SERVFAIL from another server is kept, 5s, at most 5m.
//     0 is not at all.
//   - disable: keep no answers with records, or no denials, of names in these
//     zones, or of any. It may be given several times.
//   - keepttl: give out entries with the TTLs that they came with.
//
// When there is no room those go that were asked once: names that are asked
// again and again stay, however many others come by. All server blocks share 64
// MB; if that is full, those blocks give way that have most.
//
// A reload keeps the entries of each server block in which nothing changed
// below cache, in the order of directives. Of several forwards in a block only those
// count that a name is in the zone of: where one of them changes, comes or goes, the
// entries of other names stay.
//
//	.:1053 {
//	    cache 30 {
//	        success 9984 3600
//	        prefetch 10 1m 20%
//	        serve_stale 24h verify 1s 30s 10s
//	        disable denial internal.example
//	    }
//	    forward . /etc/resolv.conf
//	}
//
// Metrics, by server, zones and view: coredns_cache_requests_total,
// coredns_cache_misses_total, coredns_cache_prefetch_total,
// coredns_cache_drops_total (answers that could not be kept though they hold
// records), coredns_cache_served_stale_total, and by type, success or denial,
// too: coredns_cache_entries, coredns_cache_hits_total,
// coredns_cache_evictions_total. Answers of this server's own are misses; requests
// are hits and misses together.
//
// Same as CoreDNS: syntax, defaults and metrics. Differs: answers of this
// server's own are not kept, records keep each their own TTL, authoritative
// answers are so from the cache only if they came so, denials without a SOA
// record are not kept, and SERVFAIL does not hide stale answers. Ours: the
// bound in bytes, one question for many clients, entries over reloads, and what
// is evicted.
type Cache struct {
	zones      []wire.Name
	everywhere bool   // the root is one of them
	label      string // the zones, as metrics name them
	view       string
	options

	store    *Store
	scope    *scope
	ways     ways
	word     dns.StateKey
	step     int // where it stands in its chain
	passages passages
	spare    sync.Pool // of *look

	metrics *metrics.Registry
	series  []*series // by server, all before the first query
	drops   []func()  // of what ends with the plan
}

// bounds are those of one kind of answers: how many, and their TTLs in seconds.
type bounds struct {
	entries     int
	least, most uint32
}

// options are what the directive says.
type options struct {
	bounds   [2]bounds             // success; denial
	disabled [2]config.Fallthrough // zones of which nothing is kept

	prefetch uint32 // hits; zero is never
	gap      time.Duration
	percent  int

	staleFor       time.Duration
	staleTTL       uint32
	recheck        time.Duration
	verify         bool
	verifyWithin   time.Duration
	preferPositive bool

	failureFor time.Duration
	keepTTL    bool
}

// concerns says whether q is in the directive's zones.
func (c *Cache) concerns(q *dns.Query) bool {
	name, labels := q.Name(), q.Labels()
	for _, zone := range c.zones {
		at := len(name) - len(zone)
		if at < 0 || string(name[at:]) != string(zone) {
			continue
		}
		for i := range labels { // the bytes must be those of whole labels
			if q.LabelOffset(i) == at {
				return true
			}
		}
	}
	return false
}

// never says whether nothing of q is kept: it is no question about records, or
// it is disabled altogether.
func (c *Cache) never(q *dns.Query) bool {
	const firstMeta, lastMeta = 249, wire.TypeAXFR // TKEY, TSIG, IXFR, AXFR (RFC 6895 §3.1)
	return firstMeta <= q.Type && q.Type <= lastMeta ||
		c.disabled[0].Through(q.Name()) && c.disabled[1].Through(q.Name())
}

// zonesText is the zones as metrics name them.
func zonesText(zones []wire.Name) string {
	var names []string
	for _, z := range zones {
		names = append(names, z.String())
	}
	return strings.Join(names, ",")
}
