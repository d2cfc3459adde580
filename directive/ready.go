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
	"github.com/seamark/seamark/internal/web"
)

// A Ready says over HTTP whether the server can answer: the ready directive.
//
//	ready [ADDRESS] {
//	    monitor until-ready|continuously
//	}
//
// GET /ready at ADDRESS, :8181 unless given, answers 200 and OK when every
// directive of the server block that has to get ready is: kubernetes, when it
// has seen the whole cluster once. Until then it answers 503 and the names of
// those that are not, with commas between.
//
// With monitor until-ready, the default, a directive that was ready once is not
// asked again: an API server that is away must not take the addresses of all
// DNS servers out of their Service. With continuously each request asks anew. A
// reload begins anew in both.
//
//	.:1053 {
//	    ready 127.0.0.1:0 {
//	        monitor continuously
//	    }
//	    whoami
//	}
//
// Several server blocks may give the same ADDRESS: 200 needs all of them.
// health and prometheus may share it too. It stays bound over reloads.
//
// Same as CoreDNS. Differs: the address is open until the very end of a
// shutdown, and answers 200 there as long as the server does.
type Ready struct {
	addr    string
	monitor string
	probes  []*probe
}

// A probe asks one handler.
type probe struct {
	name    string
	handler interface{ Ready() bool }
	forever bool // ask again after it was ready

	mu    sync.Mutex
	ready bool
}

// probesOf gives a probe for each handler of b that gets ready. Call it in
// OnPlanned.
func probesOf(b *config.Block, forever bool) (probes []*probe) {
	for _, h := range config.Find[interface{ Ready() bool }](b) {
		probes = append(probes, &probe{name: b.NameOf(h), handler: h, forever: forever})
	}
	return probes
}

// SetupReady is the Setup of ready.
func SetupReady(b *config.Block, uses []corefile.Directive) error {
	r := &Ready{addr: ":8181", monitor: "until-ready"}
	err := errors.Join(config.Once(uses), address(uses[0], &r.addr), uses[0].Options(
		corefile.Option{Name: "monitor", Min: 1, Max: 1, Set: corefile.OneOf(&r.monitor, "until-ready", "continuously")},
	))
	b.OnPlanned(func() error {
		r.probes = probesOf(b, r.monitor == "continuously")
		return nil
	})
	b.OnStart(func(s *config.Start) error {
		site, err := web.At(s, r.addr)
		if err != nil {
			return uses[0].Errorf("%v", err)
		}
		page, err := config.Keep(s, readyKey{s, r.addr}, func() (*readyPage, error) { return &readyPage{}, nil })
		if err != nil {
			return err
		}
		page.probes = append(page.probes, r.probes...)
		b.OnSwap(func() {
			// Not before: health may have shown the site, and the handlers of
			// this plan may not have been started.
			site.Handle("/ready", page)
			site.Show()
		})
		return nil
	})
	return err
}

type readyKey struct {
	plan *config.Start
	addr string
}

// A readyPage asks for all blocks of one plan that share an address.
type readyPage struct{ probes []*probe }

// Stop is for config.Keep: the page ends with its site.
func (*readyPage) Stop() {}

func (p *readyPage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if waiting := unready(p.probes); len(waiting) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, strings.Join(waiting, ","))
		return
	}
	_, _ = io.WriteString(w, "OK")
}

// unready names those that are not ready, each once.
func unready(probes []*probe) (waiting []string) {
	for _, probe := range probes {
		if !probe.ask() && !slices.Contains(waiting, probe.name) {
			waiting = append(waiting, probe.name)
		}
	}
	return waiting
}

func (p *probe) ask() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready || p.forever {
		p.ready = p.handler.Ready()
	}
	return p.ready
}
