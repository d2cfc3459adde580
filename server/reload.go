package server

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
)

const (
	// settle is how long a changed Corefile must stay the same before it is used.
	settle = 50 * time.Millisecond
	// looks is how often one that goes on changing is looked at before it is left to
	// the next time.
	looks = 20
)

// reload returns the plan that serves: one of c, or old if that failed. That it
// begins and ends well is logged at a level.
func (r *Run) reload(ctx context.Context, old *Plan, c corefile.Reading, level slog.Level) *Plan {
	r.Log.Log(ctx, level, "Reloading")
	plan, err := r.plan(c)
	if err == nil {
		err = plan.Start(ctx, old)
	}
	if err != nil && ctx.Err() != nil {
		return old // the server was told to end while it reloaded
	}
	if err != nil {
		r.failures().Add(1)
		r.Log.Error("reload failed, the old configuration goes on:\n" + err.Error())
		return old
	}
	r.Log.Log(ctx, level, "Reloading complete")
	return plan
}

// look reloads if the Corefile is another than when it was last looked at. One
// that is wrong is tried, and complained of, once.
func (r *Run) look(ctx context.Context, old *Plan, level slog.Level) *Plan {
	c := r.Read()
	for range looks {
		if c.Sum == r.seen {
			return old
		}
		// Half a Corefile may be a sound one: whoever is writing it is given the
		// time to. Nobody may ask for another look.
		time.Sleep(settle)
		before := c.Sum
		if c = r.Read(); c.Sum != before {
			continue
		}
		if c.Sum == old.sum {
			r.seen = c.Sum
			r.Log.Log(ctx, level, "plugin/reload: the Corefile is again what the server runs with")
			return old
		}
		return r.reload(ctx, old, c, level)
	}
	return old
}

func (r *Run) failures() *metrics.Counter {
	return r.Metrics.Counter("coredns_reload_failed_total", "Reloads that failed and left the old configuration in place.")
}

// reload is how often the Corefile is looked at; nil is never. Of several
// blocks the most eager one decides.
func (p *Plan) reload() (often *config.Reload) {
	for _, b := range p.blocks {
		if b.Reload != nil && (often == nil || b.Reload.Interval < often.Interval) {
			often = b.Reload
		}
	}
	return often
}

// lookAgain tells when it is time to. Many servers share a ConfigMap: the
// jitter keeps them from reloading together.
func (p *Plan) lookAgain() <-chan time.Time {
	often := p.reload()
	if often == nil {
		return nil
	}
	wait := often.Interval
	if often.Jitter > 0 {
		wait += rand.N(often.Jitter)
	}
	return time.After(wait)
}

// showVersion says, in the log and in the metrics, which configuration runs.
func (p *Plan) showVersion() {
	if p.reload() == nil || p.sum == (corefile.Sum{}) {
		return
	}
	p.opts.Log.Info("plugin/reload: Running configuration SHA512 = " + p.sum.String())
	p.until("coredns_reload_version_info", "The hash of the configuration that runs; the value is always 1.",
		func() float64 { return 1 }, "hash", "sha512", "value", p.sum.String())
}
