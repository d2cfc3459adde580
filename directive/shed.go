package directive

import (
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// A Shed counts what is given up under too much load: the shed directive.
//
//	shed
//
// It needs no switching on: the server's work is bounded by design. Queries are
// read no faster than they are answered, in batches, so that under overload the
// kernel's socket buffers fill and drop what comes last; a client asks again.
// Queries that have to wait, for an upstream or the like, are 4096 at most; the
// next one is answered with SERVFAIL at once, so that its client may turn to
// another server. TCP connections and what each of them may have under way are
// bounded, too.
//
// What the directive adds is the count of the queries for which there was no
// room to wait; reason is always full:
//
//	coredns_shed_dropped_total{server, reason}
//
// seamark_given_up_queries_total counts the same for the whole server, and
// seamark_waiting_queries says how many wait, with the directive or without it.
//
//	.:1053 {
//	    shed
//	    whoami
//	}
//
// Same as CoreDNS: syntax and the metric's name. Differs: it sheds without being
// told to, and with an answer instead of silence; reason has other values.
type Shed struct {
	metrics *metrics.Registry
	full    dns.PerChain[metrics.Counter]
}

// SetupShed is the Setup of shed.
func SetupShed(b *config.Block, uses []corefile.Directive) error {
	s := &Shed{metrics: b.Metrics}
	b.Offer(s)
	b.OnChain(func(c *dns.Chain) { s.full.At(c, s.begin) })
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options())
}

func (s *Shed) begin(c *dns.Chain) *metrics.Counter {
	return s.metrics.Counter("coredns_shed_dropped_total", "Queries given up because the server had too much to do.", "server", c.Server, "reason", "full")
}

// ObserveDNS counts q if there was no room for it.
func (s *Shed) ObserveDNS(q *dns.Query) {
	if errors.Is(q.Err, dns.ErrParkingFull) {
		s.full.At(q.Chain(), s.begin).Add(1)
	}
}
