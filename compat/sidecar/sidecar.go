// Package sidecar is the third container of a kube-dns pod: it puts questions to
// the pod's DNS servers, as a client of theirs, and shows over HTTP which of them
// answer and what dnsmasq counts. Package cmd calls it for the subcommand sidecar;
// flags, pages and metrics are in docs/reference/sidecar.md. It answers no
// questions, knows no Kubernetes, and no server of ours depends on it.
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/metrics"
)

// patience is how long one question waits for its answer, if the interval between
// two of them is not shorter.
const patience = 2 * time.Second

// Options is what the flags say.
type Options struct {
	Probes    []Probe
	Dnsmasq   string        // HOST:PORT that is asked for statistics
	Poll      time.Duration // from one round of such questions to the next
	Listen    string        // HOST:PORT of the pages
	Path      string        // of the page of metrics
	Namespace string        // what the names of the sidecar's own metrics begin with; may be empty
	Log       *slog.Logger
}

var namespacePattern = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)?$`)

// Check says what is wrong with the options, in terms of the flags.
func (o *Options) Check() error {
	var wrong []error
	labels := map[string]bool{}
	for _, p := range o.Probes {
		if labels[p.Label] {
			wrong = append(wrong, fmt.Errorf("two probes are called %s: give each --probe a label of its own", p.Label))
		}
		labels[p.Label] = true
	}
	if o.Poll < time.Millisecond {
		wrong = append(wrong, fmt.Errorf("--dnsmasq-poll-interval-ms: want at least 1, got %d", o.Poll.Milliseconds()))
	}
	if !strings.HasPrefix(o.Path, "/") || o.Path == healthzPath || strings.HasPrefix(o.Path, healthcheckPath) {
		wrong = append(wrong, fmt.Errorf("--prometheus-path: want a path such as /metrics, and none of the sidecar's other pages, got %q", o.Path))
	}
	if !namespacePattern.MatchString(o.Namespace) {
		wrong = append(wrong, fmt.Errorf("--prometheus-namespace: want letters, digits and _, the first no digit, got %q", o.Namespace))
	}
	return errors.Join(wrong...)
}

// Run probes, and serves the pages, until ctx ends, which is no error. The options
// have passed Check. It waits for what it has started.
func Run(ctx context.Context, o Options) error {
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("serving pages: %w: see --prometheus-addr and --prometheus-port", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()

	registry := new(metrics.Registry)
	registry.RegisterProcess()
	registry.RegisterGo()
	site := pages{metrics: registry, path: o.Path, probes: map[string]*prober{}}
	for _, p := range o.Probes {
		w := newProber(p, registry, o.Namespace, o.Log)
		site.probes[p.Label] = w
		all.Go(func() { every(ctx, spread(p.Interval), p.Interval, w.probe) })
	}
	stats := newStatistics(o.Dnsmasq, registry, o.Namespace, o.Log)
	all.Go(func() { every(ctx, 0, o.Poll, stats.poll) })

	o.announce(listener.Addr())
	server := site.server()
	served := make(chan error, 1)
	all.Go(func() { served <- server.Serve(listener) })
	select {
	case <-ctx.Done():
		_ = server.Close() // a page that is being read is cut off: there is nothing to save
		return nil
	case err := <-served:
		return fmt.Errorf("serving pages: %w", err)
	}
}

// announce logs what runs, and what can only fail.
func (o *Options) announce(addr net.Addr) {
	o.Log.Info("sidecar serves", "address", addr, "metrics", o.Path)
	o.Log.Info("statistics", "dnsmasq", o.Dnsmasq, "interval", o.Poll)
	var anys []string
	for _, p := range o.Probes {
		o.Log.Info("probe", "label", p.Label, "server", p.Server, "name", p.Name, "type", dns.TypeToString[p.Type], "interval", p.Interval)
		if p.Type == dns.TypeANY {
			anys = append(anys, p.Label)
		}
	}
	if len(anys) > 0 {
		o.Log.Warn("kube-dns refuses questions of type ANY, other servers have no records for them, and the probe fails: "+
			"give a type as the fifth field of --probe", "labels", strings.Join(anys, ","))
	}
}

// full is a metric's name as Prometheus's own client builds it of its parts.
func full(namespace, subsystem, name string) string {
	if namespace != "" {
		namespace += "_"
	}
	return namespace + subsystem + "_" + name
}

// A state is whether something worked when it was last tried.
type state struct{ known, good bool }

// level is that of the line about the next try: as given if it is news, and for
// those who look closely if it is not.
func (s *state) level(good bool, news slog.Level) slog.Level {
	old := *s
	*s = state{known: true, good: good}
	if old == *s {
		return slog.LevelDebug
	}
	return news
}

// withPort is server, with port 53 if it names none. An IPv6 address may stand
// alone, without brackets.
func withPort(server string) string {
	if bare := strings.Trim(server, "[]"); net.ParseIP(bare) != nil {
		return net.JoinHostPort(bare, "53")
	}
	if !strings.Contains(server, ":") {
		return server + ":53"
	}
	return server
}
