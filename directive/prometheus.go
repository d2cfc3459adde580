package directive

import (
	"crypto/tls"
	"errors"
	"net/http"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/internal/web"
	"github.com/seamark/seamark/metrics"
)

// A Prometheus counts queries and serves the server's metrics: the prometheus
// directive.
//
//	prometheus [ADDRESS] {
//	    runtime_metrics
//	    tls CERT KEY [CA] {
//	        client_auth nocert|request|require|verify_if_given|require_and_verify
//	    }
//	}
//
// GET /metrics at ADDRESS, localhost:9153 unless given, answers in the
// Prometheus text format 0.0.4, with everything that any part of the server
// counts. The queries of those server blocks are counted that have the word:
//
//	coredns_dns_requests_total{server, zone, view, proto, family, type}
//	coredns_dns_do_requests_total{server, view, zone}
//	coredns_dns_responses_total{server, zone, view, rcode, plugin}
//	coredns_dns_request_duration_seconds{server, zone, view}
//	coredns_dns_request_size_bytes{server, zone, view, proto}
//	coredns_dns_response_size_bytes{server, zone, view, proto}
//
// server is dns:// and the address that was asked, zone the server block's, view
// the block's view if it has one, proto udp or tcp, family 1 for IPv4 and 2 for
// IPv6, type the question's or other, plugin the directive that answered. The
// last three are histograms. Queries that no server block at the address is for,
// which are refused, are counted in zone dropped.
//
// There are also coredns_build_info, coredns_panics_total,
// coredns_plugin_enabled{server, zone, view, name} of the directives that meet or
// see queries, and what the Go runtime and the operating system say of the
// process: go_*, process_*.
//
// runtime_metrics adds everything else that the Go runtime measures (package
// runtime/metrics), some hundred series more: go_sched_latencies_seconds and
// others. Sums of such histograms are estimates.
//
// tls serves HTTPS instead of HTTP, with this certificate and its key. If there
// is a CA, clients must show a certificate signed by it, or do what client_auth
// says: nocert asks for none, request and require do not look at who signed it,
// verify_if_given lets clients come without one. The files are read again as
// clients connect, so certificates can be renewed while the server runs.
//
//	.:1053 {
//	    prometheus 127.0.0.1:0 {
//	        runtime_metrics
//	    }
//	    whoami
//	}
//
// Several server blocks may give the same ADDRESS, and each address serves the
// metrics of all blocks; health and ready may share it too, unless it is served
// with tls. It stays bound over reloads, and counters go on from where they were.
//
// Same as CoreDNS: names, labels and buckets. Differs: coredns_plugin_enabled does
// not name directives that queries do not come by, such as bind.
type Prometheus struct {
	addr    string
	tls     web.TLS
	metrics *metrics.Registry
	names   []string // of the directives that meet or see queries
	chains  dns.PerChain[series]
}

// SetupPrometheus is the Setup of prometheus.
func SetupPrometheus(b *config.Block, uses []corefile.Directive) error {
	p, everything := &Prometheus{addr: "localhost:9153", metrics: b.Metrics}, false
	err := errors.Join(config.Once(uses), address(uses[0], &p.addr), uses[0].Options(
		corefile.Option{Name: "tls", Min: 2, Max: 3, Block: true, Once: true, Set: func(o corefile.Directive) error { return p.secure(b, o) }},
		corefile.Option{Name: "runtime_metrics", Set: corefile.Flag(&everything)},
	))
	b.Offer(p)
	b.OnPlanned(func() error {
		for _, step := range b.Chain.Steps() {
			p.names = append(p.names, step.Name)
		}
		p.names = append(p.names, b.Observers()...)
		return nil
	})
	b.OnStart(func(s *config.Start) error {
		site, err := web.AtTLS(s, p.addr, p.tls)
		if err != nil {
			return uses[0].Errorf("%v", err)
		}
		// Its key is its own: it ends with its plan.
		_, _ = config.Keep(s, p, func() (*Prometheus, error) { return p, nil })
		page := newMetricsPage(p.metrics)
		if everything {
			p.metrics.RegisterAllGo()
		}
		site.Handle("/metrics", page)
		b.OnSwap(site.Show)
		return nil
	})
	b.OnChain(func(c *dns.Chain) { c.Exchange(p, p.chains.At(c, p.begin)) })
	return err
}

// Unserved returns the observer of queries in no server block's zone.
func (p *Prometheus) Unserved() dns.Observer { return unserved{p} }

// secure reads the option tls.
func (p *Prometheus) secure(b *config.Block, d corefile.Directive) error {
	args := d.Words()
	p.tls.Cert, p.tls.Key = b.Path(args[0]), b.Path(args[1])
	if len(args) == 3 {
		p.tls.CA, p.tls.Client = b.Path(args[2]), tls.RequireAndVerifyClientCert
	}
	modes := []string{"nocert", "request", "require", "verify_if_given", "require_and_verify"} // as tls.ClientAuthType counts them
	return d.Options(corefile.Option{Name: "client_auth", Min: 1, Max: 1, Set: func(o corefile.Directive) error {
		word := ""
		if err := corefile.OneOf(&word, modes...)(o); err != nil {
			return err
		}
		p.tls.Client = tls.ClientAuthType(slices.Index(modes, word))
		if p.tls.CA == "" && p.tls.Client >= tls.VerifyClientCertIfGiven {
			return o.Errorf("%s needs a CA behind the key", word)
		}
		return nil
	}})
}

func (p *Prometheus) begin(c *dns.Chain) *series { return newSeries(p.metrics, c, p.names) }

// Stop takes back that the plan's directives are enabled.
func (p *Prometheus) Stop() {
	for s := range p.chains.All() {
		for _, drop := range s.drops {
			drop()
		}
	}
}

// An unserved counts what no server block is for; no directive is enabled there.
type unserved struct{ *Prometheus }

func (u unserved) ObserveDNS(q *dns.Query) { u.chains.At(q.Chain(), u.begin).ObserveDNS(q) }

func (u unserved) begin(c *dns.Chain) *series { return newSeries(u.metrics, c, nil) }

// A metricsPage shows everything that is counted.
type metricsPage struct{ of *metrics.Registry }

// newMetricsPage sees to it that what every such page has is there.
func newMetricsPage(r *metrics.Registry) metricsPage {
	r.Counter("coredns_panics_total", "Panics of handlers; each was answered with SERVFAIL.")
	r.RegisterProcess()
	r.RegisterGo()
	return metricsPage{r}
}

func (p metricsPage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_ = p.of.WriteText(w) // a scraper that goes away is no matter
}

// ObserveDNS counts q where no chain has series of its own in p's place.
func (p *Prometheus) ObserveDNS(q *dns.Query) { p.chains.At(q.Chain(), p.begin).ObserveDNS(q) }

// ObserveDNS counts q, which walked the series' chain.
func (s *series) ObserveDNS(q *dns.Query) {
	family, t, shard := family(q), typeIndex(q.Type), q.Shard()
	if t < 0 {
		t = len(counted)
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

func family(q *dns.Query) int {
	if q.Peer.Addr().Is4() {
		return 0
	}
	return 1
}
