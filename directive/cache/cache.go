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
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A Cache stores answers of other servers: the cache directive. Its reference page is
// docs/reference/directives/cache.md.
type Cache struct {
	options
	zones    wire.ZoneMap[struct{}]
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
	memory   int64                 // bytes of entries; zero means no limit of the server block's own
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

// applies reports whether q's name is in the directive's zones.
func (c *Cache) applies(q *dns.Query) bool {
	if c.allZones {
		return true
	}
	_, at := c.zones.Longest(&q.Request, 0)
	return at >= 0
}

// uncacheable reports whether no answer to q is stored: its type is a meta type,
// or storing is disabled for both kinds of answers.
func (c *Cache) uncacheable(q *dns.Query) bool {
	const firstMeta, lastMeta = 249, wire.TypeAXFR // TKEY, TSIG, IXFR, AXFR (RFC 6895 §3.1)
	return firstMeta <= q.Type && q.Type <= lastMeta ||
		c.disabled[0].Through(q.Name()) && c.disabled[1].Through(q.Name())
}
