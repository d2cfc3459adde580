package directive

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/internal/web"
	"github.com/seamark/seamark/metrics"
)

// A Health says over HTTP that the process lives: the health directive.
//
//	health [ADDRESS] {
//	    lameduck DURATION
//	}
//
// GET /health at ADDRESS, :8080 unless given, answers 200 and OK, from before
// the server is ready until it stops. It says nothing about the data that the
// server has: see ready.
//
// lameduck makes the server go on serving, healthy as before, for DURATION (at
// most 1h) after it has been told to stop, so that those who have its address
// still get answers until they have learnt of others. The default is 0s.
//
//	.:1053 {
//	    health 127.0.0.1:0 {
//	        lameduck 5s
//	    }
//	    whoami
//	}
//
// Several server blocks may give the same ADDRESS, and the longest lameduck
// counts; ready and prometheus may share it too. It stays bound over reloads.
//
// Once a second the server asks itself for this page, so that its own slowness
// shows. An answer that takes longer than a second is logged, too:
//
//	coredns_health_request_duration_seconds  how long it took: a histogram
//	coredns_health_request_failures_total    how often there was no answer
//
// Same as CoreDNS.
type Health struct {
	addr string
	duck Lameduck
}

// SetupHealth is the Setup of health.
func SetupHealth(b *config.Block, uses []corefile.Directive) error {
	h := &Health{addr: ":8080"}
	err := errors.Join(config.Once(uses), address(uses[0], &h.addr), uses[0].Options(
		corefile.Option{Name: "lameduck", Min: 1, Max: 1, Set: h.duck.read},
	))
	b.Offer(h)
	b.OnStart(func(s *config.Start) error {
		site, err := web.At(s, h.addr)
		if err != nil {
			return uses[0].Errorf("%v", err)
		}
		site.Handle("/health", h)
		site.ShowFirst()
		b.OnSwap(site.Show)
		_, _ = config.Keep(s, pollKey{h.addr}, func() (*poll, error) { return newPoll(site.Addr().String(), b), nil })
		return nil
	})
	b.OnShutdown(h.duck.stay)
	return err
}

func (h *Health) ServeHTTP(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "OK") }

const (
	pollEvery    = time.Second
	pollPatience = 5 * time.Second
)

type pollKey struct{ addr string }

// A poll asks for the page of one address again and again. It outlives reloads.
type poll struct {
	url      string
	client   http.Client
	log      *slog.Logger
	duration *metrics.Histogram
	failures *metrics.Counter
	stop     context.CancelFunc
	ended    chan struct{}
}

func newPoll(addr string, b *config.Block) *poll {
	p := &poll{
		url:    "http://" + addr + "/health",
		client: http.Client{Timeout: pollPatience, Transport: new(http.Transport)}, // by no proxy
		log:    b.Log,
		duration: b.Metrics.Histogram("coredns_health_request_duration_seconds", "How long the server waited for its own health page.",
			[]float64{0.00025, 0.0025, 0.025, 0.25, 2.5}),
		failures: b.Metrics.Counter("coredns_health_request_failures_total", "How often the server could not read its own health page."),
		ended:    make(chan struct{}),
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	go p.run(ctx)
	return p
}

func (p *poll) run(ctx context.Context) {
	defer close(p.ended)
	defer p.client.CloseIdleConnections()
	next := time.NewTicker(pollEvery)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			p.once(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// once asks once.
func (p *poll) once(ctx context.Context) {
	begun := time.Now()
	err := p.get(ctx)
	took := time.Since(begun)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		p.failures.Add(1)
		p.log.Warn("plugin/health: the server's own request for health failed", "url", p.url, "error", err)
	case took > pollEvery:
		p.log.Warn("plugin/health: the server's own request for health took more than a second", "url", p.url, "took", took)
	}
	p.duration.Observe(took.Seconds())
}

func (p *poll) get(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	reply, err := p.client.Do(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, reply.Body)
	_ = reply.Body.Close()
	return err
}

// Stop ends the asking.
func (p *poll) Stop() {
	p.stop()
	<-p.ended
}

// address reads the one argument of a directive that serves HTTP.
func address(d corefile.Directive, addr *string) error {
	if err := d.Arity(0, 1); err != nil || len(d.Args) == 0 {
		return err
	}
	*addr = d.Args[0].Text
	if err := web.ParseAddress(*addr); err != nil {
		return d.Errorf("%v", err)
	}
	return nil
}
