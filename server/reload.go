package server

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/health"
)

const (
	// settleTime is how long a changed Corefile must stay unchanged before it is
	// used.
	settleTime = 50 * time.Millisecond
	// maxReads is how often a Corefile that keeps changing is read before the check
	// ends without a reload.
	maxReads = 20
)

// reload replaces old by a plan for c and returns it. After an error it returns
// old, which continues to serve. level is the level of the messages about a
// successful reload.
func (r *Run) reload(ctx context.Context, old *Plan, c corefile.Reading, level slog.Level) *Plan {
	r.Log.Log(ctx, level, "Reloading")
	plan, err := r.plan(c)
	if err == nil {
		err = plan.Start(ctx, old)
	}
	if err != nil && ctx.Err() != nil {
		return old // the process received a signal to stop
	}
	if err != nil {
		r.failures().Add(1)
		r.logErrors(slog.LevelError, "Reload failed, the old configuration continues to serve", err)
		r.Shared.Health.Set(r, "reload", health.Condition{
			Severity: health.Warning, Alert: "SeamarkReloadFailed",
			Text: "the last reload failed, and the configuration of before serves: " + firstLine(err),
			Next: "seamark check",
		})
		return old
	}
	r.Shared.Health.Clear(r, "reload")
	r.warn(plan)
	r.moveSuccessors(ctx, plan)
	r.tellAccepted(plan)
	r.Log.Log(ctx, level, "Reloading complete")
	return plan
}

// reloadIfChanged reloads if the Corefile differs from the last one that was
// read, so that an invalid Corefile is tried and logged once, or if interfaces have
// other addresses.
func (r *Run) reloadIfChanged(ctx context.Context, old *Plan, level slog.Level) *Plan {
	addresses := old.changedAddresses()
	if addresses == r.tried && r.unchanged != nil && r.unchanged() {
		return old
	}

	c := r.Read()
	if c.Sum == old.sum && addresses != r.tried {
		r.tried = addresses
		if addresses != "" {
			r.Log.Log(ctx, level, "Addresses of interfaces changed", "addresses", addresses)
			return r.reload(ctx, old, c, level)
		}
		r.Shared.Health.Clear(r, "reload") // the addresses for which it failed are gone
	}

	for range maxReads {
		if c.Sum == r.seen {
			return old
		}

		// The writer may not have finished, and a truncated Corefile can be
		// valid. A further change may not be signalled, so read again here.
		time.Sleep(settleTime)
		before := c.Sum
		if c = r.Read(); c.Sum != before {
			continue
		}

		if c.Sum == old.sum {
			r.seen, r.unchanged = c.Sum, c.Unchanged
			r.Log.Log(ctx, level, "Corefile matches the running configuration again")
			r.Shared.Health.Clear(r, "reload")
			return old
		}
		return r.reload(ctx, old, c, level)
	}
	return old
}

// firstLine returns the first of the lines of an error, and how many others there are.
func firstLine(err error) string {
	lines := strings.Split(err.Error(), "\n")
	if len(lines) == 1 {
		return lines[0]
	}
	return fmt.Sprintf("%s (and %d more)", lines[0], len(lines)-1)
}

// changedAddresses returns the present addresses of the blocks whose interfaces have
// other addresses than when they were planned.
func (p *Plan) changedAddresses() string {
	var changed []string
	for _, i := range Find[interfaceAddresses](p) {
		for _, a := range i.Changed() {
			changed = append(changed, a.IP.String())
		}
	}
	return strings.Join(changed, " ")
}

func (r *Run) failures() *metrics.Counter {
	return r.Metrics.Counter("coredns_reload_failed_total",
		"Reloads that failed and left the old configuration in place.")
}

// reload returns the shortest interval between two checks of the Corefile of any
// block, and its jitter. It is 0 if no block has the directive reload.
func (p *Plan) reload() (interval, jitter time.Duration) {
	for _, r := range Find[corefileChecks](p) {
		if i, j := r.CorefileChecks(); interval == 0 || i < interval {
			interval, jitter = i, j
		}
	}
	return interval, jitter
}

// nextCheck returns a channel that receives a value when the Corefile is due for
// a check, or nil if it is not checked. Because of the jitter, servers that share
// a ConfigMap do not reload at the same time.
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

// showVersion logs and exports the hash of the running configuration.
func (p *Plan) showVersion() {
	if interval, _ := p.reload(); interval == 0 || p.sum == (corefile.Sum{}) {
		return
	}
	// CoreDNS logs the hash in the same format.
	p.opts.Log.Info("plugin/reload: Running configuration SHA512 = " + p.sum.String())
	p.temporaryGauge("coredns_reload_version_info", "The hash of the configuration that runs; the value is always 1.",
		func() float64 { return 1 }, "hash", "sha512", "value", p.sum.String())
}
