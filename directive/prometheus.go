package directive

import (
	"crypto/tls"
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/web"
)

// Prometheus counts queries and serves the server's metrics over HTTP: the prometheus
// directive. Its reference page is docs/reference/directives/prometheus.md.
type Prometheus struct {
	addr    string
	tls     web.TLS
	metrics *metrics.Registry
	names   []string // of the directives that handle or observe queries
	drops   []func() // remove the gauges of this plan
}

// SetupPrometheus sets up the prometheus directive.
func SetupPrometheus(b *config.Block, uses []corefile.Directive) error {
	p, allRuntime := &Prometheus{addr: "localhost:9153", metrics: b.Metrics}, false
	parseTLS := func(o corefile.Directive) error { return p.tls.Parse(b, o, tls.RequireAndVerifyClientCert) }
	err := errors.Join(config.Once(uses), web.ReadAddress(uses[0], &p.addr), uses[0].Options(
		corefile.Option{Usage: "tls CERT KEY [CA]", Block: true, Once: true, Set: parseTLS},
		corefile.Option{Usage: "runtime_metrics", Set: corefile.Flag(&allRuntime)},
	))

	b.Offer(p)
	b.OnPlanned(func() error {
		for _, step := range b.Chain.Steps() {
			p.names = append(p.names, step.Name)
		}
		p.names = append(p.names, b.Observers()...)
		return nil
	})

	web.ServePages(b, uses[0], p.addr, p.tls, func(s *config.Start, site *web.Site) error {
		// The key is p itself, so that p stops with its plan.
		_, _ = config.Keep(s, p, func() (*Prometheus, error) { return p, nil })
		if allRuntime {
			p.metrics.RegisterAllGo()
		}
		site.Handle("/metrics", metricsPage(p.metrics))
		return nil
	})
	return err
}

// Unserved returns the observer of queries that no server block serves.
// They walk c, and no directive is enabled there.
func (p *Prometheus) Unserved(c *dns.Chain) dns.Observer { return newSeries(p.metrics, c, nil) }

// BindChain returns the series of c, which count in p's place.
func (p *Prometheus) BindChain(c *dns.Chain) any {
	s := newSeries(p.metrics, c, p.names)
	p.drops = append(p.drops, s.drops...)
	return s
}

// Stop removes the plan's series of coredns_plugin_enabled.
func (p *Prometheus) Stop() {
	for _, drop := range p.drops {
		drop()
	}
}

// ObserveDNS makes p an observer. BindChain replaces p in each chain.
func (p *Prometheus) ObserveDNS(*dns.Query) {}

// ObserveDNS counts q in the series of its chain.
func (s *series) ObserveDNS(q *dns.Query) {
	family, t, shard := family(q), typeIndex(q.Type), q.Shard()
	if t < 0 {
		t = len(countedTypes)
	}
	s.requests.at(int(q.Proto), family, t).AddTo(shard, 1)
	if q.DO {
		s.do.AddTo(shard, 1)
	}
	s.querySize[q.Proto].Observe(shard, uint64(len(q.Packet())))
	if q.Dropped() {
		return
	}

	s.responses.at(int(min(q.RCode, highestRCode)), q.AnsweredStep()+1, 0).AddTo(shard, 1)
	s.duration.Observe(shard, uint64(max(0, q.Elapsed)))
	s.replySize[q.Proto].Observe(shard, uint64(len(q.Reply())))
}

// Repetition reports that repeated replies need only be counted.
func (*Prometheus) Repetition() dns.Repetition { return dns.Repetition{} }

// Repetition reports that repeated replies need only be counted.
func (s *series) Repetition() dns.Repetition { return dns.Repetition{Count: s.countRepeated} }

// countRepeated counts replies that the server did not see, which took hardly any time.
func (s *series) countRepeated(r *dns.Repeated, n uint64) {
	family, t := 1, typeIndex(r.Type)
	if r.IPv4 {
		family = 0
	}
	if t < 0 {
		t = len(countedTypes)
	}

	s.requests.at(int(dns.UDP), family, t).Add(n)
	if r.DO {
		s.do.Add(n)
	}
	s.querySize[dns.UDP].Add(uint64(r.QuerySize), n)
	s.responses.at(int(min(r.RCode, highestRCode)), r.Step+1, 0).Add(n)
	s.duration.Add(0, n)
	s.replySize[dns.UDP].Add(uint64(r.ReplySize), n)
}

func family(q *dns.Query) int {
	if q.Peer.Addr().Is4() {
		return 0
	}
	return 1
}
