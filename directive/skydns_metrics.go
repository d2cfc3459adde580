package directive

import (
	"errors"
	"regexp"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/internal/web"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A SkyDNSMetrics counts queries under the names that SkyDNS and kube-dns give
// them, for dashboards and alerts that were made for these: the skydns_metrics
// directive.
//
//	skydns_metrics ADDRESS [PATH] {
//	    namespace NAME
//	    subsystem NAME
//	}
//
// GET PATH at ADDRESS, /metrics unless given, answers in the Prometheus text
// format 0.0.4, with everything that any part of the server counts: go_*,
// process_* and the names of prometheus are there, too, as far as something
// counts them. The queries of those server blocks are counted that have the word:
//
//	skydns_skydns_dns_request_count_total{system}
//	skydns_skydns_dns_request_duration_seconds{system}
//	skydns_skydns_dns_response_size_bytes{system}
//	skydns_skydns_dns_error_count_total{system, cause}
//	skydns_skydns_dns_cachemiss_count_total{cache}
//
// Names begin with namespace and subsystem, each skydns unless given: letters,
// digits and _, the first no digit. The second and the third are histograms. All
// series are there before the first query.
//
// system says who knew the answer:
//
//   - auth: this server, by its own data, or nobody;
//   - reverse: the same of names below in-addr.arpa and ip6.arpa;
//   - cache: cache;
//   - stub: the upstreams of a forward whose FROM is not the root;
//   - recursive: those of any other forward.
//
// Queries that waited for the answer to an equal one count as that one does.
// What a directive makes of the answers to further questions, such as those for
// the target of an alias, is its own.
//
// cause is nxdomain, nodata (NOERROR without an answer), refused, servfail,
// truncated (the answer was cut to its size over UDP) or overflow (over TCP).
//
// cache is response: the queries that were sent on where there is a cache, which
// did not have the answer. signature is always 0, since this server signs
// nothing.
//
//	.:1053 {
//	    skydns_metrics 127.0.0.1:0 {
//	        namespace kubedns
//	    }
//	    whoami
//	}
//
// Several server blocks may give the same ADDRESS, and other directives may
// share it; blocks with the same names count together. It stays bound over
// reloads, and counters go on from where they were.
//
// Ours: CoreDNS has no such directive. Same as SkyDNS: names, labels and buckets.
// Differs: every series is there from the start, answers of this server's own are
// no cache misses, and queries that get no reply have neither duration nor size.
type SkyDNSMetrics struct {
	addr, path           string
	namespace, subsystem string
	origins              origins
	systems              [systems]systemSeries
	missed               *metrics.Counter
}

// The values of the label system are those of source, and reverse.
const (
	reverse = byStub + 1
	systems = reverse + 1
)

// A systemSeries is what is counted of one system.
type systemSeries struct {
	requests       *metrics.Counter
	duration, size *metrics.IntHistogram
	errors         [causes]*metrics.Counter
}

// A cause is why a reply counts as an error.
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

// SetupSkyDNSMetrics is the Setup of skydns_metrics.
func SetupSkyDNSMetrics(b *config.Block, uses []corefile.Directive) error {
	m := &SkyDNSMetrics{path: "/metrics", namespace: "skydns", subsystem: "skydns"}
	err := errors.Join(config.Once(uses), m.arguments(uses[0]), uses[0].Options(
		corefile.Option{Name: "namespace", Min: 1, Max: 1, Set: metricName(&m.namespace)},
		corefile.Option{Name: "subsystem", Min: 1, Max: 1, Set: metricName(&m.subsystem)},
	))
	b.Offer(m)
	b.OnPlanned(func() error {
		m.origins = newOrigins(b)
		return nil
	})
	b.OnStart(func(s *config.Start) error {
		site, err := web.At(s, m.addr)
		if err != nil {
			return uses[0].Errorf("%v", err)
		}
		m.begin(b.Metrics)
		site.Handle(m.path, newMetricsPage(b.Metrics))
		b.OnSwap(site.Show)
		return nil
	})
	return err
}

// arguments reads ADDRESS [PATH].
func (m *SkyDNSMetrics) arguments(d corefile.Directive) error {
	if err := d.Arity(1, 2); err != nil {
		return err
	}
	var errs []error
	m.addr = d.Args[0].Text
	if err := web.ParseAddress(m.addr); err != nil {
		errs = append(errs, d.Errorf("%v", err))
	}
	if len(d.Args) == 2 {
		if m.path = d.Args[1].Text; !strings.HasPrefix(m.path, "/") {
			errs = append(errs, d.Errorf("want a path such as /metrics, got %q", m.path))
		}
	}
	return errors.Join(errs...)
}

// metricName reads a part of a metric's name.
func metricName(to *string) func(corefile.Directive) error {
	return func(d corefile.Directive) error {
		if name := d.Args[0].Text; regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(name) {
			*to = name
			return nil
		}
		return d.Errorf("want letters, digits and _, the first no digit, got %q", d.Args[0].Text)
	}
}

// begin makes the series. Those that are there, by another block or an older
// plan, are the same.
func (m *SkyDNSMetrics) begin(r *metrics.Registry) {
	name := func(rest string) string { return m.namespace + "_" + m.subsystem + "_dns_" + rest }
	for i, system := range [systems]string{bySelf: "auth", byMemory: "cache", byOthers: "recursive", byStub: "stub", reverse: "reverse"} {
		s := &m.systems[i]
		s.requests = r.Counter(name("request_count_total"), "Queries that came, by who knew the answer.", "system", system)
		s.duration = r.IntHistogram(name("request_duration_seconds"), "From the packet of a query to its reply.", 1e-9,
			[]float64{.001, .003, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "system", system)
		s.size = r.IntHistogram(name("response_size_bytes"), "Size of replies.", 1,
			[]float64{0, 512, 1024, 1500, 2048, 4096, 8192, 16384, 32768, 65536}, "system", system)
		for j, cause := range [causes]string{"nxdomain", "nodata", "truncated", "refused", "overflow", "servfail"} {
			s.errors[j] = r.Counter(name("error_count_total"), "Replies that are no answer, by why.", "system", system, "cause", cause)
		}
	}
	const help = "Queries that were sent on because they were not in the cache."
	m.missed = r.Counter(name("cachemiss_count_total"), help, "cache", "response")
	r.Counter(name("cachemiss_count_total"), help, "cache", "signature")
}

// ObserveDNS counts q.
func (m *SkyDNSMetrics) ObserveDNS(q *dns.Query) {
	system, shard := m.origins.of(q), q.Shard()
	switch {
	case system >= byOthers && m.origins.memory != nil:
		m.missed.AddTo(shard, 1)
	case system == bySelf && isReverse(q):
		system = reverse
	}
	s := &m.systems[system]
	s.requests.AddTo(shard, 1)
	if q.Dropped() {
		return
	}
	s.duration.Observe(shard, uint64(max(0, q.Elapsed)))
	s.size.Observe(shard, uint64(len(q.Reply())))
	if why := causeOf(q); why != noCause {
		s.errors[why].AddTo(shard, 1)
	}
}

// isReverse says whether q's name is below one of the zones of reverse names.
func isReverse(q *dns.Query) bool {
	at := q.Labels() - 2
	if at < 0 {
		return false
	}
	zone := string(q.Name()[q.LabelOffset(at):])
	return zone == "\x07in-addr\x04arpa\x00" || zone == "\x03ip6\x04arpa\x00"
}

// causeOf is why the reply to q counts as an error.
func causeOf(q *dns.Query) cause {
	const flagTC = byte(wire.FlagTC >> 8) // in the third byte of a message
	cut := len(q.Reply()) >= wire.HeaderLen && q.Reply()[2]&flagTC != 0
	switch {
	case q.RCode == wire.NXDomain:
		return causeNXDomain
	case q.RCode == wire.Refused:
		return causeRefused
	case q.RCode == wire.ServFail:
		return causeServFail
	case cut && q.Proto == dns.TCP:
		return causeOverflow
	case cut:
		return causeTruncated
	case q.RCode == wire.NoError && q.Answer.Count[wire.Answers] == 0:
		return causeNoData
	}
	return noCause
}
