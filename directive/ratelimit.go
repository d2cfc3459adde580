package directive

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// RateLimit limits the UDP replies to each client network: the ratelimit directive. Its
// reference page is docs/reference/directives/ratelimit.md.
type RateLimit struct {
	slip           int
	v4bits, v6bits int
	exempt         *prefixes
	reportOnly     bool
	table          *rateTable

	metrics *metrics.Registry
	counts  [3]*metrics.Counter // by rateAction, of the chain that BindChain was called for
}

type rateAction int

const (
	rateDropped rateAction = iota
	rateTruncated
	rateReported
)

// SetupRateLimit sets up the ratelimit directive.
func SetupRateLimit(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	rate, size := 0, 0
	l := &RateLimit{metrics: b.Metrics}
	var exempt []netip.Prefix

	err := errors.Join(config.Once(uses), d.Arity(1, 1), d.Options(
		corefile.Option{Usage: "slip N", Once: true, Default: "2", Set: corefile.Int(&l.slip, 0, 100)},
		corefile.Option{Usage: "ipv4_prefix N", Once: true, Default: "24", Set: corefile.Int(&l.v4bits, 1, 32)},
		corefile.Option{Usage: "ipv6_prefix N", Once: true, Default: "56", Set: corefile.Int(&l.v6bits, 1, 128)},
		corefile.Option{Usage: "exempt SOURCES...", Set: corefile.Append(&exempt, config.ParseSource)},
		corefile.Option{Usage: "table_size N", Once: true, Default: "65536", Set: corefile.Int(&size, 1<<10, 1<<24)},
		corefile.Option{Usage: "report_only", Once: true, Set: corefile.Flag(&l.reportOnly)},
	))
	if len(d.Args) == 1 {
		err = errors.Join(err, corefile.Int(&rate, 1, 100000)(d))
	}
	if err != nil {
		return err
	}

	l.exempt, l.table = newPrefixes(exempt), newRateTable(size, rate)
	b.Handle(l)
	return nil
}

// AnyClass lets ratelimit see queries of every class.
func (*RateLimit) AnyClass() dns.ClassUse { return dns.ClassPassed }

// ServeDNS drops or truncates q if its client's network is above the limit.
func (l *RateLimit) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Proto != dns.UDP || q.Depth() > 0 {
		return dns.Next
	}

	client, bits := q.Peer.Addr().Unmap().WithZone(""), l.v4bits
	if client.Is6() {
		bits = l.v6bits
	}
	network, _ := client.Prefix(bits) // fails for no valid address
	if l.exempt.contains(client) || l.table.allow(network.Addr(), q.Now()) {
		return dns.Next
	}

	switch {
	case l.reportOnly:
		l.counts[rateReported].AddTo(q.Shard(), 1)
		return dns.Next
	case l.slip > 0 && rand.IntN(l.slip) == 0:
		l.counts[rateTruncated].AddTo(q.Shard(), 1)
		q.TC = true
		return dns.Done
	}
	l.counts[rateDropped].AddTo(q.Shard(), 1)
	return dns.Drop
}

// BindChain returns a copy of l that counts for c.
func (l *RateLimit) BindChain(c *dns.Chain) any {
	bound := *l
	for action, name := range [...]string{
		rateDropped: "dropped", rateTruncated: "truncated", rateReported: "reported",
	} {
		bound.counts[action] = l.metrics.Counter("seamark_ratelimit_queries_total",
			"UDP queries above the limit of the client's network.",
			"server", c.Server, "zone", c.Zone, "view", c.View, "action", name)
	}
	return &bound
}

const (
	// rateWays is the number of slots that one network may be in.
	rateWays = 4
	// rateUnits is the number of units of time that a reply is charged: an eighth of the time between two replies
	// counts every rate exactly.
	rateUnits = 8
	// rateTime is the part of a slot that holds a time in these units: eleven years at the highest rate.
	rateTime = 1<<48 - 1
)

// A rateTable remembers how much of its limit each network has used, in a fixed
// number of slots. A slot holds a part of the network's hash and, as in the generic
// cell rate algorithm, the time at which the network has its full limit again. Two
// of the networks that are active at one time share a slot with a probability of
// one in 16,000.
type rateTable struct {
	slots []atomic.Uint64
	rate  uint64 // replies a second; a network that had no queries for a second has as many at once
	seed  maphash.Seed
	start time.Time
}

// newRateTable returns a table of size slots, rounded up to a power of two.
func newRateTable(size, rate int) *rateTable {
	n := rateWays
	for n < size {
		n *= 2
	}
	// Slots of earlier times count as unused, so time begins later than zero.
	start := time.Now().Add(-time.Second)
	return &rateTable{slots: make([]atomic.Uint64, n), rate: uint64(rate), seed: maphash.MakeSeed(), start: start}
}

// allow reports whether a network may have a reply now, and charges it for the reply.
func (t *rateTable) allow(network netip.Addr, now time.Time) bool {
	key := network.As16()
	hash := maphash.Bytes(t.seed, key[:])
	tag := hash &^ rateTime
	set := t.slots[int(hash)&(len(t.slots)-1)&^(rateWays-1):][:rateWays]

	perSecond := t.rate * rateUnits
	elapsed := uint64(max(0, now.Sub(t.start)))
	present := elapsed/uint64(time.Second)*perSecond + elapsed%uint64(time.Second)*perSecond/uint64(time.Second)
	for {
		slot, old := findRate(set, tag)
		full := present
		if old&^rateTime == tag {
			full = max(present, old&rateTime)
		}
		full += rateUnits
		if full > present+perSecond {
			return false
		}
		if slot.CompareAndSwap(old, tag|full) {
			return true
		}
	}
}

// findRate returns the network's slot in its set and the slot's value, or else the
// slot to replace: the slot of the network that has used least of its limit.
func findRate(set []atomic.Uint64, tag uint64) (slot *atomic.Uint64, value uint64) {
	for i := range set {
		v := set[i].Load()
		if v&^rateTime == tag {
			return &set[i], v
		}
		if slot == nil || v&rateTime < value&rateTime {
			slot, value = &set[i], v
		}
	}
	return slot, value
}

// ExplainDNS implements [dns.Explainer].
func (l *RateLimit) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	if v == dns.Next {
		return nil
	}
	text := fmt.Sprintf("the network of the client gets more than %d replies a second", l.table.rate)
	return []dns.Cause{{Text: text}}
}
