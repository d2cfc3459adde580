package directive

import (
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// highestRCode stands for itself and for every higher one. Ours is BADVERS.
const highestRCode = wire.BadVers

// counted are the types that have a series of their own, as CoreDNS has it; the
// others share one.
var counted = [...]wire.Type{
	wire.TypeA, wire.TypeAAAA, wire.TypePTR, wire.TypeSRV, wire.TypeTXT, wire.TypeNS, wire.TypeSOA,
	wire.TypeCNAME, wire.TypeMX, wire.TypeHTTPS, wire.TypeDS, wire.TypeAXFR, wire.TypeIXFR, wire.TypeANY,
	46, 47, 48, 50, // RRSIG, NSEC, DNSKEY, NSEC3
}

// typeIndex is -1 for the types that share a series.
func typeIndex(t wire.Type) int { return slices.Index(counted[:], t) }

// A series is what prometheus counts for one chain. Nothing in it is looked up
// by name for a query: places in arrays are.
type series struct {
	drops               []func() // of what ends with the plan
	requests, responses grid
	do                  *metrics.Counter
	duration            *metrics.IntHistogram    // of nanoseconds
	querySize           [2]*metrics.IntHistogram // by dns.Proto
	replySize           [2]*metrics.IntHistogram
}

// newSeries makes the series of c; enabled are its block's directives.
func newSeries(r *metrics.Registry, c *dns.Chain, enabled []string) *series {
	labels := func(more ...string) []string {
		return append([]string{"server", c.Server, "zone", c.Zone, "view", c.View}, more...)
	}
	one := func() float64 { return 1 }
	var drops []func()
	for _, name := range enabled {
		drops = append(drops, r.TemporaryGauge("coredns_plugin_enabled", "1 for each directive that a zone of a server has.",
			one, labels("name", name)...))
	}
	names := []string{""} // by Query.Step and one
	for _, step := range c.Steps() {
		names = append(names, step.Name)
	}
	sizes := []float64{0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3}
	s := &series{
		drops: drops,
		do: r.Counter("coredns_dns_do_requests_total", "Queries with the DO bit.",
			"server", c.Server, "view", c.View, "zone", c.Zone),
		duration: r.IntHistogram("coredns_dns_request_duration_seconds", "From the packet of a query to its reply.",
			1e-9, durations(), labels()...),
	}
	s.requests = newGrid(len(s.querySize), 2, len(counted)+1, func(proto, family, t int) *metrics.Counter {
		name := "other"
		if t < len(counted) {
			name = counted[t].String()
		}
		return r.Counter("coredns_dns_requests_total", "Queries that came, by zone, protocol, address family and type.",
			labels("proto", dns.Proto(proto).String(), "family", strconv.Itoa(family+1), "type", name)...)
	})
	s.responses = newGrid(int(highestRCode)+1, len(names), 1, func(code, by, _ int) *metrics.Counter {
		return r.Counter("coredns_dns_responses_total", "Replies, by response code and the directive that gave them.",
			labels("rcode", wire.RCode(code).String(), "plugin", names[by])...)
	})
	for p := range s.querySize {
		proto := labels("proto", dns.Proto(p).String())
		s.querySize[p] = r.IntHistogram("coredns_dns_request_size_bytes", "Size of queries.", 1, sizes, proto...)
		s.replySize[p] = r.IntHistogram("coredns_dns_response_size_bytes", "Size of replies.", 1, sizes, proto...)
	}
	return s
}

// durations are CoreDNS's buckets: a quarter of a millisecond, doubled up to
// eight seconds.
func durations() (bounds []float64) {
	for i, b := 0, 0.00025; i < 16; i, b = i+1, b*2 {
		bounds = append(bounds, b)
	}
	return bounds
}

// A grid is counters by three small numbers. Each is asked for at its first
// use, so that what never happens is not listed.
type grid struct {
	n     [3]int
	cells []atomic.Pointer[metrics.Counter]
	ask   func(i, j, k int) *metrics.Counter
}

func newGrid(i, j, k int, ask func(i, j, k int) *metrics.Counter) grid {
	return grid{[3]int{i, j, k}, make([]atomic.Pointer[metrics.Counter], i*j*k), ask}
}

func (g *grid) at(i, j, k int) *metrics.Counter {
	cell := &g.cells[(i*g.n[1]+j)*g.n[2]+k]
	c := cell.Load()
	if c == nil {
		c = g.ask(i, j, k)
		cell.Store(c)
	}
	return c
}
