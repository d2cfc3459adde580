package directive

import (
	"crypto/tls"
	"errors"
	"net/http"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/status"
	"github.com/seamark/seamark/observe/web"
)

// Prometheus counts queries and serves the server's metrics over HTTP: the
// prometheus directive.
//
//	prometheus [ADDRESS] {
//	    runtime_metrics
//	    tls CERT KEY [CA] {
//	        client_auth nocert|request|require|verify_if_given|require_and_verify
//	    }
//	}
//
// GET /metrics at ADDRESS, localhost:9153 by default, returns all metrics of
// the process: in the text format of OpenMetrics 1.0.0 if the client asks for it
// (Accept), else in the Prometheus text format 0.0.4; with gzip if the client
// accepts it. docs/reference/metrics.md lists the metrics of all directives.
// Queries are counted in the server blocks that have the directive:
//
//	coredns_dns_requests_total{server, zone, view, proto, family, type}
//	coredns_dns_do_requests_total{server, view, zone}
//	coredns_dns_responses_total{server, zone, view, rcode, plugin}
//	coredns_dns_request_duration_seconds{server, zone, view}
//	coredns_dns_request_size_bytes{server, zone, view, proto}
//	coredns_dns_response_size_bytes{server, zone, view, proto}
//
// The last three are histograms. The labels are
//
//	server  dns:// and the address that received the query
//	zone    the server block's zone; "dropped" for queries that no server block at
//	        the address serves, which are refused
//	view    the server block's view, if it has one
//	proto   udp or tcp
//	family  1 for IPv4, 2 for IPv6
//	type    the query type, or other
//	plugin  the directive that answered
//
// Other metrics are coredns_build_info, coredns_panics_total,
// coredns_plugin_enabled{server, zone, view, name} for each directive that
// handles or observes queries, and the metrics of the Go runtime and the
// operating system: go_*, process_*.
//
// runtime_metrics adds all metrics of Go's runtime/metrics package,
// several hundred series: go_sched_latencies_seconds and others. The sums of these
// histograms are estimates.
//
// tls serves HTTPS instead of HTTP with this certificate and key. With a CA,
// clients must present a certificate signed by it. client_auth changes that:
// nocert requests no certificate, request and require do not verify the signature, and
// verify_if_given accepts clients without a certificate. The files are read again
// as clients connect, so you can renew certificates while the server runs. A
// missing file is an error of the Corefile.
//
//	.:1053 {
//	    prometheus 127.0.0.1:0 {
//	        runtime_metrics
//	    }
//	    whoami
//	}
//
// Several server blocks may use the same ADDRESS; every address serves the
// metrics of all blocks. health and ready may share it unless it uses tls. It
// stays open over reloads, and counters keep their values.
//
// Same as CoreDNS: names, labels and buckets. Differs: coredns_plugin_enabled
// does not list directives that handle no queries, such as bind.
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
	err := errors.Join(config.Once(uses), httpAddress(uses[0], &p.addr), uses[0].Options(
		corefile.Option{Usage: "tls CERT KEY [CA]", Block: true, Once: true, Set: func(o corefile.Directive) error { return parseTLS(b, o, &p.tls, tls.RequireAndVerifyClientCert) }},
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
	servePages(b, uses[0], p.addr, p.tls, func(s *config.Start, site *web.Site) error {
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

// metricsPage returns the page of a registry's metrics.
func metricsPage(r *metrics.Registry) http.Handler {
	r.Counter("coredns_panics_total", "Panics of handlers; each was answered with SERVFAIL.")
	return status.Metrics(r)
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

// RepeatableDNS reports that repeated replies are counted by CountRepeats.
func (*Prometheus) RepeatableDNS(*dns.Query) bool { return true }

// RepeatableDNS reports that repeated replies are counted by CountRepeats.
func (*series) RepeatableDNS(*dns.Query) bool { return true }

// CountRepeats counts replies that the server did not see, which took hardly any time.
func (s *series) CountRepeats(r *dns.Repeated, n uint64) {
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
