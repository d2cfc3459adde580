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
	"github.com/seamark/seamark/internal/web"
)

// A Pprof serves profiles of the process: the pprof directive.
//
//	pprof [ADDRESS] {
//	    block [RATE]
//	}
//
// GET /debug/pprof/ at ADDRESS, localhost:6053 unless given, lists the profiles
// that the Go runtime has (heap, goroutine, allocs, block …) in the form that go
// tool pprof reads. /debug/pprof/profile?seconds=30 measures where CPU time goes,
// /debug/pprof/trace?seconds=1 what happens when.
//
//	go tool pprof http://localhost:6053/debug/pprof/heap
//
// block also measures what goroutines wait for, and takes one sample for each
// RATE nanoseconds of waiting, 1 unless given: all of it. That has a price.
//
// Whoever can reach ADDRESS can learn much of the process and make it work:
// leave it on localhost. It stays bound over reloads; other directives may share
// it.
//
//	.:1053 {
//	    pprof localhost:0 {
//	        block 1000000
//	    }
//	    whoami
//	}
//
// Same as CoreDNS.
type Pprof struct {
	addr string
	rate int // of the block profile; zero is none
}

// SetupPprof is the Setup of pprof.
func SetupPprof(b *config.Block, uses []corefile.Directive) error {
	p := &Pprof{addr: "localhost:6053"}
	err := errors.Join(config.Once(uses), address(uses[0], &p.addr), uses[0].Options(
		corefile.Option{Name: "block", Max: 1, Set: func(o corefile.Directive) error {
			p.rate = 1
			if len(o.Args) == 0 {
				return nil
			}
			return corefile.Int(&p.rate, 1, math.MaxInt32)(o)
		}},
	))
	b.OnStart(func(s *config.Start) error {
		site, err := web.At(s, p.addr)
		if err != nil {
			return uses[0].Errorf("%v", err)
		}
		if p.rate > 0 {
			_, _ = config.Keep(s, blockKey{}, func() (blockProfile, error) { return blockProfile{}, nil })
			b.OnSwap(func() { runtime.SetBlockProfileRate(p.rate) })
		}
		site.Handle("/debug/pprof/", p)
		b.OnSwap(site.Show)
		return nil
	})
	return err
}

// A blockProfile is kept for as long as plans want one; each says its own rate.
type blockProfile struct{}

type blockKey struct{}

// Stop ends the measuring.
func (blockProfile) Stop() { runtime.SetBlockProfileRate(0) }

// ServeHTTP answers for everything below /debug/pprof/. Package net/http/pprof
// also puts itself on http.DefaultServeMux, which nothing here serves.
func (p *Pprof) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A profile takes as long as it was asked to.
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
