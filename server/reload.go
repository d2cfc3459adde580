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
	r.warn(plan)
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

// reload returns the shortest interval between two checks of the Corefile of any
// block, and its jitter. It is 0 if no block has the directive reload.
func (p *Plan) reload() (interval, jitter time.Duration) {
	for _, b := range p.blocks {
		for _, r := range config.Find[corefileChecks](b) {
			if i, j := r.CorefileChecks(); interval == 0 || i < interval {
				interval, jitter = i, j
			}
		}
	}
	return interval, jitter
}

// nextCheck returns a channel that receives a value when the Corefile is due for a
// check; nil if it is not checked. The jitter keeps servers that share a ConfigMap
// from reloading at the same time.
func (p *Plan) nextCheck() <-chan time.Time {
	wait, jitter := p.reload()
	if wait == 0 {
		return nil
	}
	if jitter > 0 {
		wait += rand.N(jitter)
	}
	return time.After(wait)
}

// showVersion says, in the log and in the metrics, which configuration runs.
func (p *Plan) showVersion() {
	if interval, _ := p.reload(); interval == 0 || p.sum == (corefile.Sum{}) {
		return
	}
	p.opts.Log.Info("plugin/reload: Running configuration SHA512 = " + p.sum.String())
	p.until("coredns_reload_version_info", "The hash of the configuration that runs; the value is always 1.",
		func() float64 { return 1 }, "hash", "sha512", "value", p.sum.String())
}
