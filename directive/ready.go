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

// Ready reports over HTTP whether the server can answer queries: the ready
// directive.
//
//	ready [ADDRESS] {
//	    monitor until-ready|continuously
//	}
//
// Use ready for readiness probes. GET /ready at ADDRESS, :8181 by default,
// returns 200 and OK when every directive of the server block is ready;
// kubernetes is ready once it has received the cluster's objects. Until then it
// returns 503 and the names of the directives that are not ready, separated by
// commas. :8181 means every address of the machine, where the kubelet finds it;
// give an IP address to listen on no other.
//
// monitor selects whether readiness can end. With until-ready, the default, a
// directive that was ready once stays ready: an unreachable API server must not
// remove all DNS servers from their Service. With continuously each request
// checks every directive. A reload starts over in both modes.
//
//	.:1053 {
//	    ready 127.0.0.1:0 {
//	        monitor continuously
//	    }
//	    whoami
//	}
//
// Several server blocks may use the same ADDRESS: it returns 200 when all of
// them are ready. health and prometheus may share it. It stays open over
// reloads.
//
// Same as CoreDNS. Differs: during a shutdown the address stays open, and
// returns 200 as long as the server answers queries.
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
