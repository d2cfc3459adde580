package handler

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/web"
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
// Same as CoreDNS: address, path, answer, lameduck. Differs: the server does
// not ask itself once a second to see whether it is overloaded, so there are no
// metrics of that.
type Health struct {
	addr     string
	lameduck time.Duration
}

// SetupHealth is the Setup of health.
func SetupHealth(b *config.Block, uses []corefile.Directive) error {
	h := &Health{addr: ":8080"}
	err := errors.Join(config.Once(uses), address(uses[0], &h.addr), uses[0].Options(
		corefile.Option{Name: "lameduck", Min: 1, Max: 1, Set: corefile.Duration(&h.lameduck, 0, time.Hour)},
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
		return nil
	})
	b.OnShutdown(func(ctx context.Context) {
		select {
		case <-time.After(h.lameduck):
		case <-ctx.Done():
		}
	})
	return err
}

func (h *Health) ServeHTTP(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "OK") }

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
