package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/operate/query"
)

// A Probe is a query that is sent to one server at an interval.
type Probe struct {
	Label    string // in the path of the page and the names of the metrics
	Server   string // HOST:PORT
	Name     string // fully qualified
	Interval time.Duration
	Type     uint16
}

const (
	defaultInterval = 5 * time.Second
	maxSeconds      = int64(math.MaxInt64 / time.Second)
)

var (
	labelPattern = regexp.MustCompile(`^[a-zA-Z0-9_]+$`)
	probeTypes   = map[string]uint16{"ANY": dns.TypeANY, "A": dns.TypeA, "AAAA": dns.TypeAAAA, "SRV": dns.TypeSRV}
)

// ParseProbe parses a value of --probe:
//
//	LABEL,SERVER[:PORT],NAME[,SECONDS][,TYPE]
//
// The default port is 53, the default interval five seconds, the default type ANY.
// Errors about the format, the label, the interval's digits and the type have the
// text of kube-dns's sidecar, which scripts may match.
func ParseProbe(text string) (Probe, error) {
	fields := strings.Split(text, ",")
	if len(fields) < 3 || len(fields) > 5 {
		return Probe{}, errors.New("invalid format to --probe: want LABEL,SERVER[:PORT],NAME[,SECONDS][,TYPE]")
	}
	p := Probe{
		Label: fields[0], Server: query.WithPort(fields[1]), Name: dns.Fqdn(fields[2]),
		Interval: defaultInterval, Type: dns.TypeANY,
	}
	if !labelPattern.MatchString(p.Label) {
		return Probe{}, fmt.Errorf("label must be of format %s", labelPattern)
	}
	if _, port, err := net.SplitHostPort(p.Server); err != nil {
		return Probe{}, fmt.Errorf("invalid server of --probe: %w", err)
	} else if _, err := net.LookupPort("udp", port); err != nil || port == "" {
		return Probe{}, fmt.Errorf("invalid server of --probe: want a port of 0..65535, got %q", port)
	}
	if _, ok := dns.IsDomainName(p.Name); !ok {
		return Probe{}, fmt.Errorf("invalid name of --probe: %q is not a domain name", fields[2])
	}

	if len(fields) > 3 {
		seconds, err := strconv.Atoi(fields[3])
		switch {
		case err != nil:
			return Probe{}, err
		case seconds < 1 || int64(seconds) > maxSeconds:
			return Probe{}, fmt.Errorf("invalid interval of --probe: want 1..%d seconds, got %d", maxSeconds, seconds)
		}
		p.Interval = time.Duration(seconds) * time.Second
	}
	if len(fields) > 4 {
		t, ok := probeTypes[fields[4]]
		if !ok {
			return Probe{}, fmt.Errorf("invalid type for DNS: %v", fields[4])
		}
		p.Type = t
	}
	return p, nil
}

// A prober runs a Probe. One goroutine calls probe; health is safe for concurrent
// use.
type prober struct {
	Probe
	log     *slog.Logger
	latency *metrics.Histogram
	errors  *metrics.Counter
	result  lastResult

	mu   sync.Mutex
	last health
}

func newProber(p Probe, r *metrics.Registry, namespace string, log *slog.Logger) *prober {
	name := func(suffix string) string { return metricName(namespace, "probe", p.Label+"_"+suffix) }
	return &prober{
		Probe: p,
		log:   log.With("probe", p.Label, "address", p.Server),
		latency: r.Histogram(name("latency_ms"),
			"Milliseconds until the reply to the probe "+p.Label+"; failures are not counted.",
			1e-6, metrics.Doubled(0.25, 16)), // up to 8192
		errors: r.Counter(name("errors"), "Failed probes "+p.Label+"."),
		last:   health{Err: "waiting for first probe"},
	}
}

func (p *prober) health() health {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// probe sends the query once and records the outcome.
func (p *prober) probe(ctx context.Context) {
	start := time.Now()
	err := p.query(ctx)
	latency := time.Since(start)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the sidecar ends: no result
	}

	if err != nil {
		p.errors.Add(1)
		p.set(health{Err: err.Error()})
		p.log.Log(ctx, p.result.level(false, slog.LevelWarn), "Probe failed", "error", err)
		return
	}
	p.latency.Add(uint64(latency), 1)
	p.set(health{IsOk: true, LatencySeconds: latency.Seconds()})
	p.log.Log(ctx, p.result.level(true, slog.LevelInfo), "Probe succeeded", "duration", latency)
}

func (p *prober) set(h health) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = h
}

// query sends the query. A reply without records in its answer section is an error.
func (p *prober) query(ctx context.Context) error {
	m := new(dns.Msg)
	m.SetQuestion(p.Name, p.Type)
	reply, err := query.Exchange(ctx, p.Server, m)
	if err != nil {
		return err
	}
	if len(reply.Answer) == 0 {
		return fmt.Errorf("querying %s: %s %s: reply %s without records",
			p.Server, p.Name, dns.TypeToString[p.Type], query.RCode(reply))
	}
	return nil
}
