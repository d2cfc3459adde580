package directive

import (
	"errors"
	"math"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/web"
)

// Pprof serves profiles of the process over HTTP: the pprof directive. Its reference page is
// docs/reference/directives/pprof.md.
type Pprof struct {
	addr string
	rate int // of the block profile; zero turns it off
}

// SetupPprof sets up the pprof directive.
func SetupPprof(b *config.Block, uses []corefile.Directive) error {
	p := &Pprof{addr: "localhost:6053"}
	err := errors.Join(config.Once(uses), web.ReadAddress(uses[0], &p.addr), uses[0].Options(
		corefile.Option{Usage: "block [RATE]", Set: func(o corefile.Directive) error {
			p.rate = 1
			return corefile.Int(&p.rate, 1, math.MaxInt32)(o)
		}},
	))
	web.ServePages(b, uses[0], p.addr, web.TLS{}, func(s *config.Start, site *web.Site) error {
		if p.rate > 0 {
			_, _ = config.Keep(s, blockKey{}, func() (blockProfile, error) { return blockProfile{}, nil })
			b.OnSwap(func() { runtime.SetBlockProfileRate(p.rate) })
		}
		site.Handle("/debug/pprof/", p)
		return nil
	})
	return err
}

// A blockProfile is kept while consecutive plans have the option block; each
// plan sets its own rate.
type blockProfile struct{}

type blockKey struct{}

// Stop turns the block profile off.
func (blockProfile) Stop() { runtime.SetBlockProfileRate(0) }

// ServeHTTP serves every path below /debug/pprof/. Importing net/http/pprof
// also registers handlers on http.DefaultServeMux, which this server does not
// use.
func (p *Pprof) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The client chooses how long a profile takes.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	switch r.URL.Path {
	case "/debug/pprof/cmdline":
		pprof.Cmdline(w, r)
	case "/debug/pprof/profile":
		pprof.Profile(w, r)
	case "/debug/pprof/symbol":
		pprof.Symbol(w, r)
	case "/debug/pprof/trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}
