// Package trace has the directive trace: spans of queries, for collectors of Zipkin and of
// OpenTelemetry.
package trace

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/redact"
)

// Trace sends the course of queries to a collector of traces: the trace directive. Its
// reference page is docs/reference/directives/trace.md.
type Trace struct {
	every   uint64
	count   atomic.Uint64
	shared  bool // client_server: servedns and the client's span are one
	options options
	out     *exporter
}

// options identify an exporter across reloads.
type options struct {
	kind, url         string
	service           string
	maxBacklog, batch int
	interval          time.Duration
}

const (
	zipkin = "zipkin"
	otlp   = "otlp"
)

// Setup sets up the trace directive.
func Setup(b *config.Block, uses []corefile.Directive) error {
	t := &Trace{}
	d, o := uses[0], &t.options
	parseRate := func(o corefile.Directive) error {
		b.Warn(o.Errorf("no effect: datadog is not supported"))
		return corefile.Float(new(float64), 0, 1)(o)
	}
	err := errors.Join(config.Once(uses), t.options.setEndpoint(d), d.Options(
		corefile.Option{Usage: "every AMOUNT", Default: "1", Set: t.parseEvery},
		corefile.Option{Usage: "service NAME", Default: "coredns", Set: corefile.String(&t.options.service)},
		corefile.Option{Usage: "client_server [BOOL]", Set: t.parseShared},
		corefile.Option{Usage: "datadog_analytics_rate [RATE]", Set: parseRate},
		orDefault("zipkin_max_backlog_size SIZE", "1000", &o.maxBacklog, corefile.Int(&o.maxBacklog, 0, 1_000_000)),
		orDefault("zipkin_max_batch_size SIZE", "100", &o.batch, corefile.Int(&o.batch, 0, 100_000)),
		orDefault("zipkin_max_batch_interval DURATION", "1s", &o.interval, corefile.Duration(&o.interval, 0, time.Hour)),
	))

	b.Offer(t)
	b.OnStart(func(s *config.Start) (err error) {
		t.out, err = config.Keep(s, t.options, func() (*exporter, error) { return newExporter(t.options, b), nil })
		return err
	})
	return err
}

// parseEvery reads every AMOUNT.
func (t *Trace) parseEvery(o corefile.Directive) (err error) {
	if t.every, err = strconv.ParseUint(o.Args[0].Text, 10, 64); err != nil {
		return o.Errorf("want a number, got %q", o.Args[0].Text)
	}
	return nil
}

// parseShared reads client_server [BOOL].
func (t *Trace) parseShared(o corefile.Directive) (err error) {
	t.shared = true
	if len(o.Args) > 0 {
		if t.shared, err = strconv.ParseBool(o.Args[0].Text); err != nil {
			return o.Errorf("want true or false, got %q", o.Args[0].Text)
		}
	}
	if t.shared && t.options.kind == otlp {
		return o.Errorf("want the endpoint type zipkin: " +
			"the protocol of otlp has no spans that server and client share")
	}
	return nil
}

// orDefault returns an option for a value that set sets. Zero means the default, as in CoreDNS.
func orDefault[T int | time.Duration](
	usage, standard string, value *T, set func(corefile.Directive) error,
) corefile.Option {
	return corefile.Option{Usage: usage, Default: standard, Set: func(o corefile.Directive) error {
		err := set(o)
		if *value == 0 {
			o.Args = []corefile.Token{{Text: standard}}
			_ = set(o)
		}
		return err
	}}
}

// setEndpoint parses the arguments of the directive.
func (o *options) setEndpoint(d corefile.Directive) error {
	if err := d.Arity(0, 2); err != nil {
		return err
	}
	words := d.Words()

	// As in CoreDNS, a single word is an endpoint: the host zipkin.
	o.kind = zipkin
	if len(words) > 0 && (len(words) == 2 || words[0] == otlp || words[0] == "datadog") {
		o.kind = strings.ToLower(words[0])
		words = words[1:]
	}

	var endpoint, path string
	switch o.kind {
	case zipkin:
		endpoint, path = "localhost:9411", "/api/v2/spans"
	case otlp:
		endpoint, path = "localhost:4318", "/v1/traces"
	case "datadog":
		return d.Errorf("datadog is not supported: " +
			"Datadog's agent accepts OTLP; write trace otlp http://HOST:4318/v1/traces")
	default:
		return d.Errorf("want the endpoint type zipkin or otlp, got %q", d.Args[0].Text)
	}
	if len(words) > 0 && words[0] != "" {
		endpoint = words[0]
	}
	lower := strings.ToLower(endpoint)
	if !strings.HasPrefix(lower, "http://") && !strings.HasPrefix(lower, "https://") {
		endpoint = "http://" + endpoint + path
	}

	u, err := corefile.ParseURL(endpoint)
	if err == nil && u.Hostname() == "" {
		err = errors.New("no host")
	}
	if err != nil {
		return d.Errorf("want HOST:PORT or a URL, got %q: %w", redact.URL(endpoint), redact.Error(err))
	}
	if o.kind == otlp && strings.Trim(u.Path, "/") == "" {
		u.Path = path
	}
	o.url = u.String()
	return nil
}

// TraceDNS implements [dns.Tracer].
func (t *Trace) TraceDNS(q *dns.Query) dns.Trace {
	if t.every == 0 || t.count.Add(1)%t.every != 0 {
		return nil
	}
	var p parent
	if q.Header != nil {
		p = readParent(q.Header, t.options.kind)
	}
	if p.sampling == unsampled {
		return nil
	}
	return newRecord(p, t.shared)
}

// ObserveDNS sends the spans of a query that TraceDNS has selected.
func (t *Trace) ObserveDNS(q *dns.Query) {
	if r, ok := q.Trace().(*record); ok {
		t.out.send(r.spans(q))
	}
}

// Metadata implements [config.Describer].
func (t *Trace) Metadata(q *dns.Query, key string) (value string, ok bool) {
	if key != "trace/traceid" {
		return "", false
	}
	if r, ok := q.Trace().(*record); ok {
		value = traceText(r.id)
	}
	return value, true
}
