package directive

import (
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// highestRCode counts itself and all higher response codes.
const highestRCode = wire.BadCookie

// countedTypes are the types that have their own value of the label type, as in
// CoreDNS. All other types share one.
var countedTypes = [...]wire.Type{
	wire.TypeA, wire.TypeAAAA, wire.TypePTR, wire.TypeSRV, wire.TypeTXT, wire.TypeNS, wire.TypeSOA,
	wire.TypeCNAME, wire.TypeMX, wire.TypeHTTPS, wire.TypeDS, wire.TypeAXFR, wire.TypeIXFR, wire.TypeANY,
	46, 47, 48, 50, // RRSIG, NSEC, DNSKEY, NSEC3
}

// typeIndex returns -1 for types that have no series of their own.
func typeIndex(t wire.Type) int { return slices.Index(countedTypes[:], t) }

// A series holds the counters of prometheus for one chain. Queries find their
// counters by index, not by label values.
type series struct {
	drops               []func() // remove the gauges that end with the plan
	requests, responses grid
	do                  *metrics.Counter
	duration            *metrics.Histogram    // in nanoseconds
	querySize           [2]*metrics.Histogram // by dns.Proto
	replySize           [2]*metrics.Histogram
}

// newSeries returns the series of c. enabled names the directives of its block.
func newSeries(r *metrics.Registry, c *dns.Chain, enabled []string) *series {
	labels := func(more ...string) []string {
		return append([]string{"server", c.Server, "zone", c.Zone, "view", c.View}, more...)
	}
	s := &series{
		do: r.Counter("coredns_dns_do_requests_total", "Queries that have the DO bit set.",
			"server", c.Server, "view", c.View, "zone", c.Zone), // in CoreDNS's order
		duration: r.ShardedHistogram("coredns_dns_request_duration_seconds", "Time from receiving a query to its reply.",
			1e-9, metrics.Doubled(0.00025, 16), labels()...), // CoreDNS's buckets: 0.25ms, doubled up to 8s
	}
	for _, name := range enabled {
		s.drops = append(s.drops, r.TemporaryGauge("coredns_plugin_enabled",
			"1 for each directive that a zone of a server uses.",
			func() float64 { return 1 }, labels("name", name)...))
	}

	s.requests = newGrid(len(s.querySize), 2, len(countedTypes)+1, func(proto, family, t int) *metrics.Counter {
		name := "other"
		if t < len(countedTypes) {
			name = countedTypes[t].String()
		}
		return r.Counter("coredns_dns_requests_total", "Queries received, by zone, protocol, address family and type.",
			labels("proto", c.Network(dns.Proto(proto)).String(), "family", strconv.Itoa(family+1), "type", name)...)
	})

	names := []string{""} // by Query.Step plus one
	for _, step := range c.Steps() {
		names = append(names, step.Name)
	}
	s.responses = newGrid(int(highestRCode)+1, len(names), 1, func(code, by, _ int) *metrics.Counter {
		return r.Counter("coredns_dns_responses_total",
			"Replies sent, by response code and the directive that answered.",
			labels("rcode", wire.RCode(code).String(), "plugin", names[by])...)
	})

	sizes := []float64{0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3}
	for p := range s.querySize {
		proto := labels("proto", c.Network(dns.Proto(p)).String())
		s.querySize[p] = r.ShardedHistogram("coredns_dns_request_size_bytes", "Size of queries.", 1, sizes, proto...)
		s.replySize[p] = r.ShardedHistogram("coredns_dns_response_size_bytes", "Size of replies.", 1, sizes, proto...)
	}
	return s
}

// A grid holds counters with three small indexes. A counter is registered at
// its first use, so that series without events are not exported.
type grid struct {
	n        [3]int
	cells    []atomic.Pointer[metrics.Counter]
	register func(i, j, k int) *metrics.Counter
}

func newGrid(i, j, k int, register func(i, j, k int) *metrics.Counter) grid {
	return grid{[3]int{i, j, k}, make([]atomic.Pointer[metrics.Counter], i*j*k), register}
}

func (g *grid) at(i, j, k int) *metrics.Counter {
	cell := &g.cells[(i*g.n[1]+j)*g.n[2]+k]
	c := cell.Load()
	if c == nil {
		c = g.register(i, j, k)
		cell.Store(c)
	}
	return c
}
