package handler

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/web"
)

// A Prometheus counts queries and serves the server's metrics: the prometheus
// directive.
//
//	prometheus [ADDRESS]
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
// server is dns:// and the address that was asked, zone the server block's,
// proto udp or tcp, family 1 for IPv4 and 2 for IPv6, type the question's or
// other, plugin the directive that answered. The last three are histograms.
// There are also coredns_build_info, coredns_panics_total,
// coredns_plugin_enabled{server, zone, view, name} of the server blocks that
// were asked anything yet, and what the Go runtime and the operating system say
// of the process: go_*, process_*.
//
//	.:1053 {
//	    prometheus 127.0.0.1:0
//	    whoami
//	}
//
// Several server blocks may give the same ADDRESS, and each address serves the
// metrics of all blocks; health and ready may share it too. It stays bound over
// reloads, and counters go on from where they were.
//
// Same as CoreDNS: names, labels and buckets. Differs: options tls and
// runtime_metrics are refused; queries that no server block is for are not
// counted; coredns_plugin_enabled names those directives that meet or see queries.
type Prometheus struct {
	addr    string
	metrics *metrics.Registry
	names   []string   // of the directives that meet or see queries
	chains  sync.Map   // *dns.Chain to *series
	mu      sync.Mutex // of who begins a chain
}

// SetupPrometheus is the Setup of prometheus.
func SetupPrometheus(b *config.Block, uses []corefile.Directive) error {
	p := &Prometheus{addr: "localhost:9153", metrics: b.Metrics}
	refuse := func(d corefile.Directive) error {
		return d.Errorf("this server does not have that option of CoreDNS's")
	}
	err := errors.Join(config.Once(uses), address(uses[0], &p.addr), uses[0].Options(
		corefile.Option{Name: "tls", Max: -1, Block: true, Set: refuse},
		corefile.Option{Name: "runtime_metrics", Max: -1, Set: refuse},
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
		site, err := web.At(s, p.addr)
		if err != nil {
			return uses[0].Errorf("%v", err)
		}
		// Its key is its own: it ends with its plan.
		_, _ = config.Keep(s, p, func() (*Prometheus, error) { return p, nil })
		describeProcess(p.metrics)
		site.Handle("/metrics", p)
		b.OnSwap(site.Show)
		return nil
	})
	return err
}

// begin makes the series of a chain, once.
func (p *Prometheus) begin(c *dns.Chain) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.chains.Load(c)
	if !ok {
		at = newSeries(p.metrics, c, p.names)
		p.chains.Store(c, at)
	}
	return at
}

// Stop takes back that the plan's directives are enabled.
func (p *Prometheus) Stop() {
	p.chains.Range(func(_, at any) bool {
		for _, drop := range at.(*series).drops {
			drop()
		}
		return true
	})
}

func (p *Prometheus) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_ = p.metrics.WriteText(w) // a scraper that goes away is no matter
}

// ObserveDNS counts q.
func (p *Prometheus) ObserveDNS(q *dns.Query) {
	at, ok := p.chains.Load(q.Chain())
	if !ok {
		at = p.begin(q.Chain())
	}
	s := at.(*series)
	family := family(q)
	if t := typeIndex(q.Type); t >= 0 {
		s.requests.at(int(q.Proto), family, t).Add(1)
	} else {
		s.requests.at(int(q.Proto), family, len(counted)).Add(1)
	}
	if q.DO {
		s.do.Add(1)
	}
	s.querySize[q.Proto].Observe(float64(len(q.Packet())))
	if q.Dropped() {
		return
	}
	s.responses.at(int(min(q.RCode, highestRCode)), q.Step()+1, 0).Add(1)
	s.duration.Observe(float64(q.Elapsed) / float64(time.Second))
	s.replySize[q.Proto].Observe(float64(len(q.Reply())))
}

func family(q *dns.Query) int {
	if q.Peer.Addr().Is4() {
		return 0
	}
	return 1
}
