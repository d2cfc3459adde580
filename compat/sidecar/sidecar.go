// Package sidecar implements the command sidecar, which replaces the third
// container of a kube-dns pod: it probes the pod's DNS servers as a client and
// serves the results over HTTP, together with dnsmasq's statistics. Package cmd
// calls Run; flags, pages and metrics are in docs/reference/sidecar.md. The package
// answers no queries, does not contact the API server, and no server of this module
// depends on it.
package sidecar

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/status"
)

// Options are the values of the flags.
type Options struct {
	Probes    []Probe
	Dnsmasq   string        // HOST:PORT that is queried for statistics
	Poll      time.Duration // interval of these queries
	Listen    string        // HOST:PORT of the status pages
	Path      string        // of the metrics page
	Namespace string        // prefix of the sidecar's own metrics; may be empty
	Log       *slog.Logger
}

var namespacePattern = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)?$`)

// Check returns all mistakes in the options, by the names of the flags.
func (o *Options) Check() error {
	var errs flags.Errors
	labels := map[string]bool{}
	for _, p := range o.Probes {
		errs.If(labels[p.Label], "--probe: two probes have the label %s: choose distinct labels", p.Label)
		labels[p.Label] = true
	}

	errs.If(o.Poll < time.Millisecond, "--dnsmasq-poll-interval-ms: want at least 1, got %d", o.Poll.Milliseconds())
	errs.If(!strings.HasPrefix(o.Path, "/") || o.Path == healthzPath || strings.HasPrefix(o.Path, healthcheckPath),
		"--prometheus-path: want a path such as /metrics that no other page has, got %q", o.Path)
	errs.If(!namespacePattern.MatchString(o.Namespace),
		"--prometheus-namespace: want letters, digits and _, not starting with a digit, got %q", o.Namespace)
	return errs.Join()
}

// Run probes the servers and serves the status pages until ctx ends, and then
// returns nil. The options have passed Check. All goroutines have ended when Run
// returns.
func Run(ctx context.Context, o Options) error {
	registry := new(metrics.Registry)
	site := pages{path: o.Path, metrics: status.Metrics(registry), probers: map[string]*prober{}}
	stats := newStatistics(o.Dnsmasq, registry, o.Namespace, o.Log)
	tasks := []func(context.Context){
		func(context.Context) { o.logStart() },
		func(ctx context.Context) { every(ctx, 0, o.Poll, stats.poll) },
	}
	for _, p := range o.Probes {
		prober := newProber(p, registry, o.Namespace, o.Log)
		site.probers[p.Label] = prober
		tasks = append(tasks, func(ctx context.Context) {
			every(ctx, randomDelay(p.Interval), p.Interval, prober.probe)
		})
	}
	return status.Run(ctx, o.Listen, "see --prometheus-addr and --prometheus-port", o.Log, site, tasks...)
}

// logStart logs the configuration, and warns about probes that cannot succeed.
func (o *Options) logStart() {
	o.Log.Info("Polling dnsmasq's statistics", "address", o.Dnsmasq, "interval", o.Poll)
	var labels []string
	for _, p := range o.Probes {
		o.Log.Info("Probing", "probe", p.Label, "address", p.Server,
			"qname", p.Name, "type", dns.TypeToString[p.Type], "interval", p.Interval)
		if p.Type == dns.TypeANY {
			labels = append(labels, p.Label)
		}
	}
	if len(labels) > 0 {
		o.Log.Warn("Probes of type ANY fail: kube-dns refuses such queries, other servers return no records; "+
			"set a type as the fifth field of --probe", "probes", strings.Join(labels, ","))
	}
}

// metricName joins the parts of a name as Prometheus's client library does.
func metricName(namespace, subsystem, name string) string {
	if namespace != "" {
		namespace += "_"
	}
	return namespace + subsystem + "_" + name
}

// A lastResult is the outcome of the last attempt, to log changes only.
type lastResult struct{ known, ok bool }

// level records an outcome and returns the level for its log message: changeLevel
// if the outcome differs from the last one, else debug.
func (r *lastResult) level(ok bool, changeLevel slog.Level) slog.Level {
	last := *r
	*r = lastResult{known: true, ok: ok}
	if last == *r {
		return slog.LevelDebug
	}
	return changeLevel
}
