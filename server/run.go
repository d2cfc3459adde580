package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
)

// A Run is a server from start to end.
type Run struct {
	Options
	// Read gives the Corefile, at the start, at each reload, and as often as the
	// directive reload has it looked at.
	Read func() corefile.Reading
	// Changed gets a value when Read may give something else; nil never does.
	Changed <-chan struct{}
	// Out is told what is served where; nil is nobody.
	Out io.Writer
	// Greeting is written after that.
	Greeting string
	// Try is questions to show as worth trying, in dig's words, if no handler
	// knows better ones; none shows nothing.
	Try     []string
	PIDFile string

	seen corefile.Sum // of the last Corefile that was planned, or found to be wrong
}

// Check reads and plans, and opens nothing. If the Corefile cannot be read
// whole, what is wrong with the rest of it is reported too.
func (r *Run) Check() (*Plan, error) { return r.plan(r.Read()) }

func (r *Run) plan(c corefile.Reading) (*Plan, error) {
	if r.Metrics == nil {
		r.Metrics = new(metrics.Registry) // of this run: counters survive reloads
	}
	r.seen = c.Sum
	plan, wrong := NewPlan(c.Servers, r.Options)
	if err := corefile.Sorted(c.Err, wrong); err != nil {
		return nil, err
	}
	plan.sum = c.Sum
	return plan, nil
}

// warn logs the warnings about a plan's Corefile.
func (r *Run) warn(plan *Plan) {
	for _, err := range corefile.All(plan.Warnings()) {
		at, _ := errors.AsType[*corefile.Error](err)
		if at == nil {
			r.Log.Warn("Corefile warning", "error", err)
			continue
		}
		r.Log.Warn("Corefile warning", "file", at.File, "line", at.Line, "directive", at.Path, "error", at.Text)
	}
}

// Serve runs the server until ctx ends or the process gets SIGTERM or SIGINT,
// after which a second one ends it at once. SIGHUP and SIGUSR1 make it read its
// Corefile again; if there is something wrong with it, the old one goes on. So
// does the directive reload, when the Corefile or what it imports has changed, and
// Changed.
func (r *Run) Serve(ctx context.Context) error {
	ctx, release := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer release()
	defer context.AfterFunc(ctx, release)() // a second signal has its usual effect, while this one starts too
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, reloadSignals()...)
	defer signal.Stop(reload)
	signal.Ignore(syscall.SIGPIPE) // whoever reads standard output may go away: answers go on

	plan, err := r.begin(ctx)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // it was told to end before it served
		}
		return err
	}
	for {
		select {
		case <-reload:
			plan = r.reload(ctx, plan, r.Read(), slog.LevelInfo)
			continue
		case <-plan.lookAgain():
			plan = r.look(ctx, plan, slog.LevelInfo)
			continue
		case <-r.Changed:
			plan = r.look(ctx, plan, slog.LevelDebug) // who has changed says so
			continue
		case <-ctx.Done():
		}
		release() // from here on a second signal has its usual effect
		r.Log.Info("shutting down")
		plan.Stop(context.WithoutCancel(ctx))
		if r.PIDFile != "" {
			if err := os.Remove(r.PIDFile); !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	}
}

// begin starts the first plan and says so.
func (r *Run) begin(ctx context.Context) (*Plan, error) {
	plan, err := r.Check()
	if err != nil {
		return nil, err
	}
	r.failures().Add(0) // it is shown before there is one
	if err := plan.Start(ctx, nil); err != nil {
		return nil, err
	}
	if r.PIDFile != "" {
		if err := os.WriteFile(r.PIDFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			plan.Stop(ended) // at once: nobody knows of this server yet
			return nil, fmt.Errorf("writing the process id: %w", err)
		}
	}
	r.warn(plan)
	if r.Out != nil {
		plan.listening(r.Out)
		fmt.Fprintln(r.Out, r.Greeting)
		r.try(ctx, plan)
	}
	return plan, nil
}

func (r *Run) try(ctx context.Context, plan *Plan) {
	if len(r.Try) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // a person is waiting
	defer cancel()
	fmt.Fprintln(r.Out, "\nTry:\n  "+strings.Join(plan.examples(ctx, r.Try), "\n  ")+"\n")
}
