package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
)

// A Run runs a server from its start to its end.
type Run struct {
	Options
	// Read returns the Corefile. Serve calls it at the start, at each reload, and
	// at the interval of the directive reload.
	Read func() corefile.Reading
	// Changed receives a value when Read may return another Corefile. It may be
	// nil.
	Changed <-chan struct{}
	// Out receives the zones and addresses after the start. It may be nil.
	Out io.Writer
	// Greeting is written to Out after the addresses.
	Greeting string
	// Try lists queries to suggest to the user, as arguments of dig, if no
	// handler has examples. If it is empty, none are suggested.
	Try     []string
	PIDFile string
	// Node reports whether the server is the cache of a node, whose Corefile may have the
	// directive capture.
	Node bool
	// PID is the process ID in the pidfile; zero means this process.
	PID int
	// Supervisor keeps copies of the sockets; it may be nil.
	Supervisor Supervisor
	// Accepted is called with the text of each Corefile that serves from then on. It may be nil.
	Accepted func(text []byte)
	// Started is called once the server answers, and Stopping before it stops or once
	// another process has replaced it. They may be nil.
	Started, Stopping func()
	// Signals are the signals of the process. If nil, Serve catches them.
	Signals *Signals

	current    atomic.Pointer[Plan] // the plan that serves
	seen       corefile.Sum         // of the last Corefile that was planned or rejected
	unchanged  func() bool          // of the same, or nil: see corefile.Reading
	tried      string               // the changed addresses of interfaces of the last reload
	successors *successors          // nil without the directive handover
	refusals   sync.WaitGroup       // of processes that wanted to replace this one
}

// Check reads and plans the Corefile and opens nothing. It returns every error.
func (r *Run) Check() (*Plan, error) { return r.plan(r.Read()) }

func (r *Run) plan(c corefile.Reading) (*Plan, error) {
	if r.Metrics == nil {
		r.Metrics = new(metrics.Registry) // one registry for all plans, so that counters survive reloads
	}
	if r.Shared == nil {
		r.Shared = new(config.Shared)
	}
	r.seen, r.unchanged = c.Sum, c.Unchanged
	plan, err := NewPlan(c.Servers, r.Options)
	if err := corefile.Sorted(c.Err, err, r.refused(plan)); err != nil {
		if plan != nil {
			plan.discard()
		}
		return nil, err
	}
	plan.sum, plan.text, plan.keep = c.Sum, c.Text, r.keepSockets
	return plan, nil
}

// refused returns an error for each directive of a plan that this server does not accept. plan
// may be nil.
func (r *Run) refused(plan *Plan) error {
	if plan == nil || r.Node {
		return nil
	}
	var errs []error
	for _, d := range Find[nodeOnly](plan) {
		errs = append(errs, d.NodeOnly().Errorf("only seamark node captures queries of pods: remove the line, "+
			"or start the server by seamark node"))
	}
	return errors.Join(errs...)
}

// warn logs the warnings about a plan's Corefile.
func (r *Run) warn(plan *Plan) {
	r.logErrors(slog.LevelWarn, "Corefile warning", plan.Warnings())
}

// logErrors logs a message for each error that err joins, with the error's position.
func (r *Run) logErrors(level slog.Level, message string, err error) {
	for _, err := range corefile.All(err) {
		at, _ := errors.AsType[*corefile.Error](err)
		if at == nil {
			r.Log.Log(context.Background(), level, message, "error", err)
			continue
		}
		attrs := []any{"file", at.File, "line", at.Line}
		if at.Path != "" {
			attrs = append(attrs, "directive", at.Path)
		}
		r.Log.Log(context.Background(), level, message, append(attrs, "error", at.Text)...)
	}
}

// Serve runs the server until ctx ends or the process receives SIGTERM, SIGINT or
// SIGQUIT. It reads the Corefile again on SIGHUP and SIGUSR1, when Changed has a
// value, and at the interval of the directive reload. If the new Corefile has an
// error, the old configuration continues to serve.
func (r *Run) Serve(ctx context.Context) error {
	signals := r.Signals
	if signals == nil {
		signals = CatchSignals(ctx)
		defer signals.Release()
		ctx = signals.Context
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of standard output may close it

	plan, err := r.start(ctx, signals)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // stopped during the start
		}
		return err
	}
	defer r.beats()()

	ctx, cancel := context.WithCancel(ctx)
	defer r.refusals.Wait()
	defer cancel()
	for {
		select {
		case <-signals.reload:
			plan = r.reload(ctx, plan, r.Read(), slog.LevelInfo)
		case <-plan.nextCheck():
			plan = r.reloadIfChanged(ctx, plan, slog.LevelInfo)
		case <-r.Changed:
			plan = r.reloadIfChanged(ctx, plan, slog.LevelDebug) // its sender logs the change
		case c := <-r.successors.requests():
			if r.handOver(ctx, plan, c) {
				return r.leave(ctx, plan)
			}
		case <-ctx.Done():
			return r.shutDown(ctx, plan, signals.quit)
		}
	}
}

// leave stops the server after another process has replaced it.
func (r *Run) leave(ctx context.Context, plan *Plan) error {
	call(r.Stopping)
	plan.Leave(context.WithoutCancel(ctx))
	if plan.remain {
		r.Log.Info("Handed over, waiting for a signal to end")
		<-ctx.Done()
	}
	return r.pidFile().remove()
}

// shutDown stops the server. It stops to wait for clients when quit is closed.
func (r *Run) shutDown(ctx context.Context, plan *Plan, quit <-chan struct{}) error {
	r.Log.Info("Shutting down")
	call(r.Stopping)
	r.successors.remove()

	patience, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() {
		select {
		case <-quit:
			cancel()
		case <-patience.Done():
		}
	}()
	plan.Stop(patience)
	return r.pidFile().remove()
}

// start starts the first plan and prints its addresses. It writes the pidfile
// before it opens sockets, so that an error about the pidfile is the only one.
func (r *Run) start(ctx context.Context, signals *Signals) (*Plan, error) {
	plan, err := r.Check()
	if err != nil {
		return nil, err
	}
	killed := wasKilled(plan.handover)
	unlock, err := r.takeOver(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer unlock()

	file := r.pidFile()
	signals.pidfile.Store(&file)
	signals.starting.Store(false)
	if plan.taken == nil { // else the old process may continue
		err = file.write()
	}
	if err == nil {
		r.warn(plan)
		r.failures().Add(0) // the metric exists before the first failure
		err = plan.Start(ctx, nil)
	}
	if killed && plan.taken == nil {
		plan, err = r.startAgain(ctx, plan, err)
	}
	if err != nil {
		plan.taken.close()
		r.successors.remove()
		return nil, errors.Join(err, file.remove())
	}

	if plan.taken != nil {
		if err := r.finishTakeover(ctx, plan); err != nil {
			return nil, errors.Join(err, file.remove())
		}
	} else if plan.opts.Inherited != nil {
		plan.opts.Inherited.CloseOwn()
	}

	if r.Out != nil {
		plan.printAddresses(r.Out)
		fmt.Fprintln(r.Out, r.Greeting)
		r.try(ctx, plan)
	}
	r.tellAccepted(plan)
	call(r.Started)
	notifySystemd(r.Log)
	return plan, nil
}

// tellAccepted calls Accepted: a plan serves.
func (r *Run) tellAccepted(plan *Plan) {
	if r.Accepted != nil {
		r.Accepted(plan.text)
	}
	plan.text = nil
}

func call(f func()) {
	if f != nil {
		f()
	}
}

func (r *Run) try(ctx context.Context, plan *Plan) {
	if len(r.Try) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // a user is waiting
	defer cancel()
	fmt.Fprintln(r.Out, "\nTry:\n  "+strings.Join(plan.examples(ctx, r.Try), "\n  ")+"\n")
}
