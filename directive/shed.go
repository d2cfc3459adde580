package directive

import (
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// Shed counts the queries that the server rejects under overload: the shed directive. Its
// reference page is docs/reference/directives/shed.md.
type Shed struct {
	metrics *metrics.Registry
	dropped [dns.NumParkingErrors]*metrics.Counter // of the chain that BindChain was called for
}

// SetupShed sets up the shed directive.
func SetupShed(b *config.Block, uses []corefile.Directive) error {
	s := &Shed{metrics: b.Metrics}
	b.Offer(s)
	return config.NoArguments(uses)
}

// BindChain returns a copy of s that counts for c.
func (s *Shed) BindChain(c *dns.Chain) any {
	bound := *s
	for why := range dns.NumParkingErrors {
		bound.dropped[why] = s.metrics.Counter("coredns_shed_dropped_total",
			"Queries rejected because too many others were waiting.", "server", c.Server, "reason", why.Label())
	}
	return &bound
}

// ObserveDNS counts q if it was rejected.
func (s *Shed) ObserveDNS(q *dns.Query) {
	if why, ok := errors.AsType[dns.ParkingError](q.Err); ok {
		s.dropped[why].Add(1)
	}
}
