package directive

import (
	"errors"
	"regexp"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/wire"
)

// SkyDNSMetrics counts queries under the metric names of SkyDNS and kube-dns: the
// skydns_metrics directive. Its reference page is docs/reference/directives/skydns_metrics.md.
type SkyDNSMetrics struct {
	addr, path           string
	namespace, subsystem string
	origins              origins
	systems              [systems]systemSeries
	missed               *metrics.Counter
}

// The label system has the names of the origins as its values, and reverse.
const (
	reverse = fromStub + 1
	systems = reverse + 1
)

// systemSeries holds the metrics of one system.
type systemSeries struct {
	requests       *metrics.Counter
	duration, size *metrics.Histogram
	errors         [causes]*metrics.Counter
}

// A cause is the reason why a reply counts as an error.
type cause int

const (
	causeNXDomain cause = iota
	causeNoData
	causeTruncated
	causeRefused
	causeOverflow
	causeServFail
	causes
	noCause cause = -1
)

// SetupSkyDNSMetrics sets up the skydns_metrics directive.
func SetupSkyDNSMetrics(b *config.Block, uses []corefile.Directive) error {
	m := &SkyDNSMetrics{path: "/metrics"}
	err := errors.Join(config.Once(uses), m.arguments(uses[0]), uses[0].Options(
		corefile.Option{Usage: "namespace NAME", Default: "skydns", Set: metricName(&m.namespace)},
		corefile.Option{Usage: "subsystem NAME", Default: "skydns", Set: metricName(&m.subsystem)},
	))
	b.Offer(m)
	b.OnPlanned(func() error {
		m.origins = newOrigins(b)
		return nil
	})
	web.ServePages(b, uses[0], m.addr, web.TLS{}, func(_ *config.Start, site *web.Site) error {
		m.register(b.Metrics)
		site.Handle(m.path, metricsPage(b.Metrics))
		return nil
	})
	return err
}

// arguments reads ADDRESS [PATH].
func (m *SkyDNSMetrics) arguments(d corefile.Directive) error {
	if err := d.Arity(1, 2); err != nil {
		return err
	}
	m.addr = d.Args[0].Text
	err := d.Each(web.ParseAddress(m.addr))
	if len(d.Args) == 2 {
		if m.path = d.Args[1].Text; !strings.HasPrefix(m.path, "/") {
			err = errors.Join(err, d.Errorf("want a path such as /metrics, got %q", m.path))
		}
	}
	return err
}

// metricName reads one part of a metric name.
func metricName(to *string) func(corefile.Directive) error {
	return func(d corefile.Directive) error {
		if name := d.Args[0].Text; regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(name) {
			*to = name
			return nil
		}
		return d.Errorf("want a name of letters, digits and _ that does not begin with a digit, got %q", d.Args[0].Text)
	}
}

// register creates the series, or finds the series that another block or plan has
// created.
func (m *SkyDNSMetrics) register(r *metrics.Registry) {
	name := func(rest string) string { return m.namespace + "_" + m.subsystem + "_dns_" + rest }
	for i, system := range [systems]string{
		fromServer: "auth", fromCache: "cache", fromUpstream: "recursive", fromStub: "stub", reverse: "reverse",
	} {
		s := &m.systems[i]
		s.requests = r.Counter(name("request_count_total"), "Queries received, by origin of the answer.",
			"system", system)
		s.duration = r.ShardedHistogram(name("request_duration_seconds"), "Time from receiving a query to its reply.", 1e-9,
			[]float64{.001, .003, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "system", system)
		s.size = r.ShardedHistogram(name("response_size_bytes"), "Size of replies.", 1,
			[]float64{0, 512, 1024, 1500, 2048, 4096, 8192, 16384, 32768, 65536}, "system", system)
		for j, cause := range [causes]string{"nxdomain", "nodata", "truncated", "refused", "overflow", "servfail"} {
			s.errors[j] = r.Counter(name("error_count_total"), "Replies without an answer, by cause.",
				"system", system, "cause", cause)
		}
	}

	const help = "Queries that were forwarded because the cache had no answer."
	m.missed = r.Counter(name("cachemiss_count_total"), help, "cache", "response")
	r.Counter(name("cachemiss_count_total"), help, "cache", "signature")
}

// ObserveDNS counts q.
func (m *SkyDNSMetrics) ObserveDNS(q *dns.Query) {
	system, shard := m.origins.origin(q), q.Shard()
	switch {
	case system >= fromUpstream && m.origins.cache != nil:
		m.missed.AddTo(shard, 1)
	case system == fromServer && wire.WithinReverse(q.Name()):
		system = reverse
	}

	s := &m.systems[system]
	s.requests.AddTo(shard, 1)
	if q.Dropped() {
		return
	}
	s.duration.Observe(shard, uint64(max(0, q.Elapsed)))
	s.size.Observe(shard, uint64(len(q.Reply())))
	if c := causeOf(q); c != noCause {
		s.errors[c].AddTo(shard, 1)
	}
}

// causeOf returns the reason why the reply to q counts as an error, or noCause.
func causeOf(q *dns.Query) cause {
	const flagTC = byte(wire.FlagTC >> 8) // in the third byte of a message
	truncated := len(q.Reply()) >= wire.HeaderLen && q.Reply()[2]&flagTC != 0
	switch {
	case q.RCode == wire.NXDomain:
		return causeNXDomain
	case q.RCode == wire.Refused:
		return causeRefused
	case q.RCode == wire.ServFail:
		return causeServFail
	case truncated && q.Proto == dns.TCP:
		return causeOverflow
	case truncated:
		return causeTruncated
	case q.RCode == wire.NoError && q.Answer.Count[wire.Answers] == 0:
		return causeNoData
	}
	return noCause
}
