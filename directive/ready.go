package directive

import (
	"errors"
	"io"
	"net/http"
	"strings"

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

// SetupReady sets up the ready directive.
func SetupReady(b *config.Block, uses []corefile.Directive) error {
	r := &Ready{addr: ":8181"}
	parseMonitor := corefile.OneOf(&r.monitor, "until-ready", "continuously")
	err := errors.Join(config.Once(uses), web.ReadAddress(uses[0], &r.addr), uses[0].Options(
		corefile.Option{Usage: "monitor until-ready|continuously", Default: "until-ready", Set: parseMonitor},
	))

	b.OnPlanned(func() error {
		r.probes = newProbes(b, r.monitor == "continuously")
		return nil
	})
	web.ServePages(b, uses[0], r.addr, web.TLS{}, func(s *config.Start, site *web.Site) error {
		page, err := config.Keep(s, config.InPlan{Plan: s, Key: r.addr}, func() (*readyPage, error) { return &readyPage{}, nil })
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

// A readyPage serves /ready for all blocks of one plan that share an address.
type readyPage struct{ probes []*probe }

// Stop implements config.Stopper. The page ends with its site.
func (*readyPage) Stop() {}

func (p *readyPage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if waiting, reasons := unready(p.probes); len(waiting) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, strings.Join(waiting, ",")+reasons)
		return
	}
	_, _ = io.WriteString(w, "OK")
}
