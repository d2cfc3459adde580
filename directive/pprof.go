package directive

import (
	"errors"
	"math"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/sys/slots"
)

// Pprof serves profiles of the process over HTTP: the pprof directive. Its reference page is
// docs/reference/directives/pprof.md.
type Pprof struct {
	addr string
	rate int // of the block profile; zero turns it off

	making *slots.Pool // for profiles: some stop all goroutines, and each costs megabytes
}

// SetupPprof sets up the pprof directive.
func SetupPprof(b *config.Block, uses []corefile.Directive) error {
	p := &Pprof{addr: "localhost:6053", making: slots.New(2, 1)}
	err := errors.Join(config.Once(uses), web.ReadAddress(uses[0], &p.addr), uses[0].Options(
		corefile.Option{Usage: "block [RATE]", Set: func(o corefile.Directive) error {
			p.rate = 1
			return corefile.Int(&p.rate, 1, math.MaxInt32)(o)
		}},
	))
	web.ServePages(b, uses[0], p.addr, web.TLS{}, func(s *config.Start, site *web.Site) error {
		if p.rate > 0 {
			_, _ = config.Keep(s, nil, func() (blockProfile, error) { return blockProfile{}, nil })
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

// Stop turns the block profile off.
func (blockProfile) Stop() { runtime.SetBlockProfileRate(0) }

// readProfile is how long a client may take to read a profile that is made.
const readProfile = 30 * time.Second

// profileTime returns how long a profile takes: the default is that of net/http/pprof.
func profileTime(r *http.Request) time.Duration {
	seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64)
	if err != nil || !(seconds > 0) {
		seconds = 30
	}
	return time.Duration(min(seconds, 3600) * float64(time.Second))
}

// ServeHTTP serves every path below /debug/pprof/. Importing net/http/pprof
// also registers handlers on http.DefaultServeMux, which this server does not
// use.
func (p *Pprof) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client := web.Client(r)
	if !p.making.TryAcquire(client) {
		http.Error(w, "a profile of the client, or two in all, are being made: try again", http.StatusServiceUnavailable)
		return
	}
	defer p.making.Release(client)

	// The client chooses how long a profile takes, and has time to read it.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(profileTime(r) + readProfile))
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
