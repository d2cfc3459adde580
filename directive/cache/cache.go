// Package cache implements the cache directive: it stores answers of upstream
// servers in wire form and answers equal queries from the store until their TTL
// expires. Package builtin lists its Setup; package server calls it.
//
// A query passes the Cache twice. On its way down ServeDNS only marks it, and
// the handlers below may answer it at once: answers of this server's own are
// never stored and never outdated. If a handler below would have to wait for
// another server, package dns calls InterceptDNS, which looks the query up in the
// Store. On a hit the query is answered from the entry. On a miss it becomes the
// leader of a pending query: equal queries that arrive meanwhile wait for its
// answer, which FinishDNS stores on the query's way up.
//
// One Store holds the entries of all server blocks and outlives reloads. Each
// server block has a scope in it, identified by the block's zones and by the
// directives below cache; a reload that changes either drops the scope.
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

// A Cache stores answers of other servers: the cache directive.
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
// Use it to answer repeated queries without asking the upstream again. Answers
// from other servers, by forward for example, are stored until their TTL
// expires. Answers that this server knows by itself (kubernetes, hosts, file,
// template ...) are never stored and always take precedence, so that you see
// every change at once, even for a name that an upstream denied a moment ago.
// Looking them up costs no more than a cache hit.
//
// You can give cache once in a server block. ZONES limit it to names in these
// zones; the default is the zones of the server block. In these zones it also
// raises and lowers the TTLs of all answers to between MINTTL and TTL. TTL, in
// seconds, applies to both kinds of answers. Write it without a unit:
// `cache 30s` caches names in the zone "30s".
//
// A positive answer is stored for the lowest TTL of its records. NXDOMAIN and
// NODATA are stored for the TTL or the MINIMUM field of the zone's SOA record,
// whichever is lower (RFC 2308), also at the end of a CNAME chain. Not stored
// are truncated answers, answers with records that do not belong to the query,
// negative answers without a SOA record, referrals, and response codes other
// than NOERROR, NXDOMAIN and SERVFAIL. Queries share an entry if their name,
// type, class, RD, CD and DO bits, forwarded EDNS options (client subnet) and
// view are the same.
//
// MINTTL also applies to answers with a TTL of 0, which are stored for 5 seconds by default,
// as in CoreDNS: otherwise each query for such a name would be sent to the upstream, also by
// each replica of a busy client. It does not delay answers from the cluster's own data. Set
// MINTTL to 0, `success 9984 3600 0`, to store no answer with a TTL of 0.
//
// Equal queries that wait at the same time are sent to the upstream once.
//
//   - success: the capacity for positive answers, 9984, and the highest (3600)
//     and lowest (5) TTL. A capacity of 0 disables storing them.
//   - denial: the same for NXDOMAIN, NODATA and SERVFAIL; 9984, 1800, 5.
//   - prefetch: refresh an entry before it expires if it was queried AMOUNT
//     times with gaps shorter than DURATION (1m), when PERCENT (10%; 10% to 90%)
//     of its TTL, or one second, remain. No client waits for the refresh. The
//     default, 0, disables it.
//   - serve_stale: answer from expired entries for DURATION (1h) after they
//     expired, with a TTL of REPLYTTL (0s) and the extended DNS error 3, or 19
//     for NXDOMAIN. immediate, the default, answers at once and refreshes the
//     entry in the background. verify asks the upstream first, and uses the
//     expired entry if there is no answer, SERVFAIL, REFUSED or a similar code,
//     or no answer within TIMEOUT (0, the default, means no limit). After a
//     failed refresh the next one is RECHECK later, at least one second.
//     SERVFAIL never replaces an answer that can still be used.
//   - serve_stale_policy prefer_positive: prefer a stored positive answer, also
//     an expired one, to a later NXDOMAIN, NODATA or CNAME without a target. By
//     default the later answer replaces it (RFC 8767). It needs serve_stale.
//   - servfail: how long to store SERVFAIL from an upstream: 5s, at most 5m. 0
//     disables it.
//   - disable: do not store positive answers, or negative answers, for names in
//     these zones; all names by default. You can give it several times.
//   - keepttl: answer with the TTLs as they were received.
//
// When the capacity is exhausted, entries that were queried once are evicted
// first: a scan of many names does not displace names that are queried
// regularly. All server blocks share 64 MB; when they are used up, the block
// that uses most loses entries.
//
// A reload keeps the entries of a server block unless its zones, its view or a
// directive below cache, in the order of directives, have changed.
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
// coredns_cache_drops_total (answers with records that could not be stored),
// coredns_cache_served_stale_total, and also by type, success or denial:
// coredns_cache_entries, coredns_cache_hits_total,
// coredns_cache_evictions_total. requests is the sum of hits and misses.
// Answers of this server's own count as neither, so the share of hits is that
// of the queries that other servers need not answer.
//
// Same as CoreDNS: syntax, defaults and names of metrics. Different: answers of
// this server's own are not stored and not counted; each record keeps its own TTL; cached answers are
// authoritative only if they were received so; negative answers without a SOA
// record are not stored; SERVFAIL does not hide expired answers. Seamark only:
// the limit in bytes, one upstream query for many clients, entries that survive
// reloads, and the choice of evicted entries.
type Cache struct {
	options
	zones    []wire.Name
	allZones bool   // zones contains the root
	label    string // the zones as a metric label
	view     string

	store *Store
	scope *scope

	stateKey dns.StateKey
	step     int       // the Cache's index in its chain
	lookups  sync.Pool // of *lookup

	metrics *metrics.Registry
	series  []*series // by server address; complete before the first query
	drops   []func()  // remove the gauges
}

// options are the arguments and options of one cache directive.
type options struct {
	bounds   [2]bounds             // by queue: success, denial
	disabled [2]config.Fallthrough // by queue: zones whose answers are not stored

	prefetch        uint32 // hits; zero disables it
	prefetchGap     time.Duration
	prefetchPercent int

	staleFor       time.Duration // zero disables serve_stale
	staleTTL       uint32
	recheck        time.Duration
	verify         bool
	verifyTimeout  time.Duration // zero means no limit
	preferPositive bool

	servfailFor time.Duration
	keepTTL     bool
}

// bounds are the capacity and the TTL range, in seconds, of one kind of answer.
type bounds struct {
	entries        int
	minTTL, maxTTL uint32
}

// inZones reports whether q's name is in the directive's zones.
func (c *Cache) inZones(q *dns.Query) bool {
	name, labels := q.Name(), q.Labels()
	for _, zone := range c.zones {
		at := len(name) - len(zone)
		if at < 0 || string(name[at:]) != string(zone) {
			continue
		}
		for i := range labels { // the suffix must start at a label
			if q.LabelOffset(i) == at {
				return true
			}
		}
	}
	return false
}

// uncacheable reports whether no answer to q is stored: its type is a meta type,
// or storing is disabled for both kinds of answers.
func (c *Cache) uncacheable(q *dns.Query) bool {
	const firstMeta, lastMeta = 249, wire.TypeAXFR // TKEY, TSIG, IXFR, AXFR (RFC 6895 §3.1)
	return firstMeta <= q.Type && q.Type <= lastMeta ||
		c.disabled[0].Through(q.Name()) && c.disabled[1].Through(q.Name())
}

// zonesText returns the zones as a metric label.
func zonesText(zones []wire.Name) string {
	var names []string
	for _, z := range zones {
		names = append(names, z.String())
	}
	return strings.Join(names, ",")
}
