package directive

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/web"
)

// Ready reports over HTTP whether the server can answer queries: the ready directive. Its
// reference page is docs/reference/directives/ready.md.
type Ready struct {
	addr    string
	monitor string
	probes  []*probe
}

// A probe checks the readiness of one handler.
type probe struct {
	name    string
	handler interface{ Ready() bool }
	// continuous makes the probe check the handler after it was ready.
	continuous bool

	mu    sync.Mutex
	ready bool
}

// newProbes returns a probe for each handler of b that has a Ready method. It
// must be called in OnPlanned or later.
func newProbes(b *config.Block, continuous bool) (probes []*probe) {
	for _, h := range config.Find[interface{ Ready() bool }](b) {
		probes = append(probes, &probe{name: b.NameOf(h), handler: h, continuous: continuous})
	}
	return probes
}

// SetupReady sets up the ready directive.
func SetupReady(b *config.Block, uses []corefile.Directive) error {
	r := &Ready{addr: ":8181", monitor: "until-ready"}
	err := errors.Join(config.Once(uses), httpAddress(uses[0], &r.addr), uses[0].Options(
		corefile.Option{Usage: "monitor until-ready|continuously", Set: corefile.OneOf(&r.monitor, "until-ready", "continuously")},
	))
	b.OnPlanned(func() error {
		r.probes = newProbes(b, r.monitor == "continuously")
		return nil
	})
	servePages(b, uses[0], r.addr, web.TLS{}, func(s *config.Start, site *web.Site) error {
		page, err := config.Keep(s, readyKey{s, r.addr}, func() (*readyPage, error) { return &readyPage{}, nil })
		if err != nil {
			return err
		}
		page.probes = append(page.probes, r.probes...)
		// Not earlier: health may already show the site while the handlers of
		// this plan have not been started.
		b.OnSwap(func() { site.Handle("/ready", page) })
		return nil
	})
	return err
}

type readyKey struct {
	plan *config.Start
	addr string
}

// A readyPage serves /ready for all blocks of one plan that share an address.
type readyPage struct{ probes []*probe }

// Stop implements config.Stopper. The page ends with its site.
func (*readyPage) Stop() {}

func (p *readyPage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if waiting := unready(p.probes); len(waiting) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, strings.Join(waiting, ","))
		return
	}
	_, _ = io.WriteString(w, "OK")
}

// unready returns the names of the handlers that are not ready, without
// duplicates.
func unready(probes []*probe) (waiting []string) {
	for _, probe := range probes {
		if !probe.check() && !slices.Contains(waiting, probe.name) {
			waiting = append(waiting, probe.name)
		}
	}
	return waiting
}

func (p *probe) check() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready || p.continuous {
		p.ready = p.handler.Ready()
	}
	return p.ready
}
