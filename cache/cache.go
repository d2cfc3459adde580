// Package cache keeps the answers of other servers: the cache directive. One
// Store holds those of all server blocks, as bytes, and outlives reloads. What
// this server knows by itself is never in it.
package cache

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A Cache keeps answers: the cache directive.
type Cache struct {
	zones []wire.Name
	label string // the zones, as metrics name them
	view  string
	options

	store   *Store
	scope   *scope
	word    dns.Word
	step    int       // where it stands in its chain
	spare   sync.Pool // of *look
	metrics *metrics.Registry

	series atomic.Pointer[[]*series]
	mu     sync.Mutex // of who makes a series
	drops  []func()   // of what ends with the plan
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
		if at == 0 || len(zone) == 1 {
			return true
		}
		for i := range labels { // the bytes must be those of whole labels
			if q.Offset(i) == at {
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
