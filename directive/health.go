package directive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
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
		site.Handle("/health", h)
		site.ShowFirst()
		_, _ = config.Keep(s, pollKey{h.addr}, func() (*poll, error) { return newPoll(site.Addr().String(), b), nil })
		return nil
	})
	b.OnShutdown(h.lameduck.wait)
	return err
}

func (h *Health) ServeHTTP(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, healthy) }

// healthy is the content of the page.
const healthy = "OK"

const (
	pollInterval = time.Second
	pollTimeout  = 5 * time.Second
)

type pollKey struct{ addr string }

// A poll requests the page of one address once a second. It survives reloads. It has no http.Client: on a node
// whose kernel answers most queries, that would be a large part of the server's time and of its program in memory.
type poll struct {
	*follow.Task
	addr     string
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	conn     net.Conn // nil if there is none
	log      *slog.Logger
	duration *metrics.Histogram
	failures *metrics.Counter
}

func newPoll(addr string, b *config.Block) *poll {
	p := &poll{
		addr: addr,
		dial: b.Dial,
		log:  b.Log,
		duration: b.Metrics.Histogram("coredns_health_request_duration_seconds",
			"Duration of the server's requests for its own health page.",
			[]float64{0.00025, 0.0025, 0.025, 0.25, 2.5}),
		failures: b.Metrics.Counter("coredns_health_request_failures_total",
			"Requests for the server's own health page that failed."),
	}
	if p.dial == nil {
		p.dial = new(net.Dialer).DialContext
	}
	p.Task = follow.Go(p.run)
	return p
}

func (p *poll) run(ctx context.Context) {
	defer p.disconnect()
	clock.Sleep(ctx, pollInterval) // the server starts
	for range clock.Together(ctx, pollInterval) {
		p.measure(ctx)
	}
}

// measure makes one request and records its duration.
func (p *poll) measure(ctx context.Context) {
	start := time.Now()
	err := p.get(ctx)
	took := time.Since(start)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		p.failures.Add(1)
		p.log.Warn("health: Request for the server's own page failed", "url", "http://"+p.addr+"/health", "error", err)
	case took > pollInterval:
		p.log.Warn("health: Request for the server's own page took longer than a second",
			"url", "http://"+p.addr+"/health", "duration", took)
	}
	p.duration.Observe(took.Seconds())
}

// get requests the page, and once more if that fails over a connection that the server may have closed meanwhile.
func (p *poll) get(ctx context.Context) error {
	reused := p.conn != nil
	err := p.request(ctx)
	if err != nil && reused && ctx.Err() == nil {
		err = p.request(ctx)
	}
	return err
}

// request requests the page over p.conn, which it opens if there is none, and closes after an error.
func (p *poll) request(ctx context.Context) (err error) {
	if p.conn == nil {
		dialing, cancel := context.WithTimeout(ctx, pollTimeout)
		defer cancel()
		if p.conn, err = p.dial(dialing, "tcp", p.addr); err != nil {
			p.conn = nil
			return err
		}
	}
	defer func() {
		if err != nil {
			p.disconnect()
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = p.conn.SetDeadline(time.Now()) })()

	_ = p.conn.SetDeadline(time.Now().Add(pollTimeout))
	if _, err := io.WriteString(p.conn, "GET /health HTTP/1.1\r\nHost: "+p.addr+"\r\n\r\n"); err != nil {
		return err
	}
	return readHealthy(p.conn)
}

// readHealthy reads the whole reply of Health.ServeHTTP.
func readHealthy(conn io.Reader) error {
	var buf [512]byte
	for n := 0; ; {
		k, err := conn.Read(buf[n:])
		n += k
		line, _, found := bytes.Cut(buf[:n], []byte("\r\n"))
		switch {
		case found && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")):
			return fmt.Errorf("got the status %q", line)
		case bytes.HasSuffix(buf[:n], []byte("\r\n\r\n"+healthy)):
			return nil
		case err != nil:
			return err
		case n == len(buf):
			return errors.New("the reply is that of another server")
		}
	}
}

func (p *poll) disconnect() {
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
}
