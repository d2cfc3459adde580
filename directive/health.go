package directive

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
)

// Health reports over HTTP that the process is alive: the health directive. Its reference page
// is docs/reference/directives/health.md.
type Health struct {
	addr     string
	lameduck Lameduck
}

// SetupHealth sets up the health directive.
func SetupHealth(b *config.Block, uses []corefile.Directive) error {
	h := &Health{addr: ":8080", lameduck: Lameduck{log: b.Log}}
	err := errors.Join(config.Once(uses), web.ReadAddress(uses[0], &h.addr), uses[0].Options(
		corefile.Option{Usage: "lameduck DURATION", Default: "0s", Set: h.lameduck.read},
	))
	b.Offer(h)
	b.Offer(&h.lameduck)
	web.ServePages(b, uses[0], h.addr, web.TLS{}, func(s *config.Start, site *web.Site) error {
		p, _ := config.Keep(s, h.addr, func() (*poll, error) { return newPoll(site.Addr(), b), nil })
		site.Handle("/health", p.page)
		site.ShowFirst()
		return nil
	})
	b.OnShutdown(h.lameduck.wait)
	return err
}

// healthy is the content of the page.
const healthy = "OK"

const (
	pollInterval = time.Second
	pollTimeout  = 5 * time.Second
)

// A poll requests the page of one address once a second. It survives reloads.
type poll struct {
	*follow.Task
	page     *web.Requester
	url      string
	log      *slog.Logger
	duration *metrics.Histogram
	failures *metrics.Counter
}

func newPoll(addr string, b *config.Block) *poll {
	p := &poll{
		page: web.NewRequester(b.Dial, addr, "/health", healthy, pollTimeout),
		url:  "http://" + addr + "/health",
		log:  b.Log,
		duration: b.Metrics.Histogram("coredns_health_request_duration_seconds",
			"Duration of the server's requests for its own health page.",
			1e-9, []float64{0.00025, 0.0025, 0.025, 0.25, 2.5}),
		failures: b.Metrics.Counter("coredns_health_request_failures_total",
			"Requests for the server's own health page that failed."),
	}
	p.Task = follow.Go(p.run)
	return p
}

func (p *poll) run(ctx context.Context) {
	defer p.page.Close()
	clock.Sleep(ctx, pollInterval) // the server starts
	for range clock.Together(ctx, pollInterval) {
		p.measure(ctx)
	}
}

// measure makes one request and records its duration.
func (p *poll) measure(ctx context.Context) {
	start := time.Now()
	err := p.page.Get(ctx)
	took := time.Since(start)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		p.failures.Add(1)
		p.log.Warn("health: Request for the server's own page failed", "url", p.url, "error", err)
	case took > pollInterval:
		p.log.Warn("health: Request for the server's own page took longer than a second",
			"url", p.url, "duration", took)
	}
	p.duration.Add(uint64(took), 1)
}
