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
)

// A Probe is one question that is put to one server again and again.
type Probe struct {
	Label    string // in the path of its page and in the names of its metrics
	Server   string // HOST:PORT
	Name     string // fully qualified
	Interval time.Duration
	Type     uint16
}

const (
	defaultInterval = 5 * time.Second
	maxSeconds      = math.MaxInt64 / int(time.Second)
)

var (
	labelPattern = regexp.MustCompile(`^[a-zA-Z0-9_]+$`)
	probeTypes   = map[string]uint16{"ANY": dns.TypeANY, "A": dns.TypeA, "AAAA": dns.TypeAAAA, "SRV": dns.TypeSRV}
)

// ParseProbe reads what --probe is given:
//
//	LABEL,SERVER[:PORT],NAME[,SECONDS][,TYPE]
//
// The port is 53, the interval five seconds and the type ANY unless they are
// given. Errors of the format, the label, the interval's digits and the type are
// the words that scripts know of kube-dns's sidecar.
func ParseProbe(text string) (Probe, error) {
	fields := strings.Split(text, ",")
	if len(fields) < 3 || len(fields) > 5 {
		return Probe{}, errors.New("invalid format to --probe")
	}
	p := Probe{Label: fields[0], Server: withPort(fields[1]), Name: dns.Fqdn(fields[2]), Interval: defaultInterval, Type: dns.TypeANY}
	if !labelPattern.MatchString(p.Label) {
		return Probe{}, fmt.Errorf("label must be of format %s", labelPattern)
	}
	if _, port, err := net.SplitHostPort(p.Server); err != nil {
		return Probe{}, fmt.Errorf("invalid server of --probe: %w", err)
	} else if _, err := net.LookupPort("udp", port); err != nil || port == "" {
		return Probe{}, fmt.Errorf("invalid server of --probe: want a port of 0..65535, got %q", port)
	}
	if _, ok := dns.IsDomainName(p.Name); !ok {
		return Probe{}, fmt.Errorf("invalid name of --probe: %q is no domain name", fields[2])
	}
	if len(fields) > 3 {
		seconds, err := strconv.Atoi(fields[3])
		switch {
		case err != nil:
			return Probe{}, err
		case seconds < 1:
			return Probe{}, fmt.Errorf("invalid interval of --probe: want 1 second or more, got %d", seconds)
		case seconds > maxSeconds:
			return Probe{}, fmt.Errorf("invalid interval of --probe: want 1 second or more, and at most %d, got %d", maxSeconds, seconds)
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

// String is what ParseProbe reads.
func (p Probe) String() string {
	return strings.Join([]string{p.Label, p.Server, p.Name, strconv.Itoa(int(p.Interval / time.Second)), dns.TypeToString[p.Type]}, ",")
}

// A prober is a probe that runs: one goroutine calls probe, any may call health.
type prober struct {
	Probe
	log     *slog.Logger
	latency *metrics.Histogram
	errors  *metrics.Counter
	state   state

	mu   sync.Mutex
	last health
}

// latencyBuckets are upper bounds in milliseconds: 0.25, 0.5, … 8192.
func latencyBuckets() (bounds []float64) {
	for k := range 16 {
		bounds = append(bounds, math.Ldexp(0.25, k))
	}
	return bounds
}

func newProber(p Probe, r *metrics.Registry, namespace string, log *slog.Logger) *prober {
	name := func(what string) string { return full(namespace, "probe", p.Label+"_"+what) }
	return &prober{
		Probe: p,
		log:   log.With("label", p.Label, "server", p.Server),
		latency: r.Histogram(name("latency_ms"), "Milliseconds until the probe "+p.Label+" had its answer; failures are not counted.",
			latencyBuckets()),
		errors: r.Counter(name("errors"), "Failures of the probe "+p.Label+"."),
		last:   health{Err: "waiting for first probe"},
	}
}

func (p *prober) health() health {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// probe asks once.
func (p *prober) probe(ctx context.Context) {
	start := time.Now()
	err := p.ask(ctx)
	took := time.Since(start)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the sidecar ends, which says nothing of the server
	}
	if err != nil {
		p.errors.Add(1)
		p.show(health{Err: err.Error()})
		p.log.Log(ctx, p.state.level(false, slog.LevelWarn), "probe fails", "error", err)
		return
	}
	p.latency.Observe(float64(took) / float64(time.Millisecond))
	p.show(health{IsOk: true, LatencySeconds: took.Seconds()})
	p.log.Log(ctx, p.state.level(true, slog.LevelInfo), "probe succeeds", "took", took)
}

func (p *prober) show(h health) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = h
}

// ask fails without an answer, and with one that has no record.
func (p *prober) ask(ctx context.Context) error {
	m := new(dns.Msg)
	m.SetQuestion(p.Name, p.Type)
	reply, err := exchange(ctx, p.Server, m)
	if err != nil {
		return err
	}
	if len(reply.Answer) == 0 {
		return fmt.Errorf("no records of type %s for %s in the answer of %s, which is %s",
			dns.TypeToString[p.Type], p.Name, p.Server, rcode(reply))
	}
	return nil
}
