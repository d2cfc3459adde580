package directive

import (
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// Shed counts the queries that the server rejects under overload: the shed
// directive.
//
//	shed
//
// You do not need shed to protect the server: its work is always bounded.
// Readers take queries in batches, and read no faster than they answer; under
// overload the kernel's socket buffers fill and the kernel drops queries, which
// clients repeat. At most 32768 queries wait for an upstream at one time, fewer
// if the memory limit is below 384 MB; a query that waits within another
// directive (autopath, dns64, etcd, rewrite cname, a CNAME's target elsewhere)
// counts eight times. One forward or other directive can make half of them wait,
// and one client two thirds, or two fifths at one directive, so that there is always room
// for others. Further queries that would have to wait are answered with SERVFAIL at once, so
// that their clients can try another server. While the kernel drops UDP queries, one forward
// or other directive can make a sixteenth of them wait, and further ones over UDP get no
// reply: a reply would take as much time as the answer to another query.
// TCP connections and the queries in progress on each of them are bounded too.
//
// shed adds a counter of the queries that were rejected because too many others
// were waiting. The label reason is full if there was no room at all, client if
// the client had used up its share, and handler if the directive had:
//
//	coredns_shed_dropped_total{server, reason}
//
// Two metrics exist with or without the directive:
// seamark_given_up_queries_total{reason} counts the same for the whole server,
// and seamark_waiting_queries is the number of waiting queries.
//
//	.:1053 {
//	    shed
//	    whoami
//	}
//
// Same as CoreDNS: syntax and the metric's name. Differs: the server limits its
// work without the directive, and answers SERVFAIL instead of sending nothing;
// reason has other values.
type Shed struct {
	metrics *metrics.Registry
	dropped [dns.NumParkingErrors]*metrics.Counter // of the chain that BindChain was called for
}

// SetupShed sets up the shed directive.
func SetupShed(b *config.Block, uses []corefile.Directive) error {
	s := &Shed{metrics: b.Metrics}
	b.Offer(s)
	return noArguments(uses)
}

// BindChain returns a copy of s that counts for c.
func (s *Shed) BindChain(c *dns.Chain) any {
	bound := *s
	for why := range dns.NumParkingErrors {
		bound.dropped[why] = s.metrics.Counter("coredns_shed_dropped_total", "Queries rejected because too many others were waiting.",
			"server", c.Server, "reason", why.Label())
	}
	return &bound
}

// ObserveDNS counts q if it was rejected.
func (s *Shed) ObserveDNS(q *dns.Query) {
	if why, ok := errors.AsType[dns.ParkingError](q.Err); ok {
		s.dropped[why].Add(1)
	}
}
