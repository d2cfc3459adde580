// Package healthz implements the command exec-healthz, which replaces the last
// container of the first kube-dns pods: it runs commands and reports their success
// over HTTP, so that a kubelet can probe servers that do not speak HTTP. Package
// cmd calls Run; flags and pages are in docs/reference/exec-healthz.md. Where there
// is no shell, the package runs simple commands itself, among them the one DNS
// lookup that those pods' manifests contain. It does not contact the API server, and
// no server of this module depends on it.
package healthz

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/observe/status"
)

// Options are the values of the flags.
type Options struct {
	Commands []string
	URLs     []string      // the path of each command's page, in the same order
	Listen   string        // HOST:PORT of the pages
	Period   time.Duration // interval between runs of a command
	Latency  time.Duration // maximum age of a result
	Timeout  time.Duration // maximum duration of a run
	Output   bool          // pages include the commands' output
	Log      *slog.Logger
}

// Check returns all mistakes in the options, by the names of the flags.
func (o *Options) Check() error {
	var errs flags.Errors
	errs.If(len(o.Commands) != len(o.URLs), "want as many -url as -cmd, got %d and %d", len(o.URLs), len(o.Commands))
	for i, text := range o.Commands {
		_, err := newCommand(text)
		errs.If(err != nil, "-cmd number %d: %w", i+1, err) // its text may have a secret
	}

	seen := map[string]bool{}
	for _, url := range o.URLs {
		isPath := strings.HasPrefix(url, "/") && !strings.ContainsAny(url, "?#% \t\n")
		errs.If(!isPath, "-url: want a path such as /healthz, got %q", url)
		errs.If(url == indexPath, "-url: / is the list of all commands: choose another path")
		errs.If(isPath && url != indexPath && seen[url], "-url: two commands have %s: choose distinct paths", url)
		seen[url] = true
	}

	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"period", o.Period}, {"latency", o.Latency}, {"timeout", o.Timeout}} {
		errs.If(d.value < time.Millisecond, "-%s: want at least 1ms, got %v", d.flag, d.value)
	}
	errs.If(o.Latency < o.Period,
		"-latency: want at least the period, %v, got %v: results would expire before the next run", o.Period, o.Latency)
	return errs.Join()
}

// Run runs the commands and serves their pages until ctx ends, and then returns
// nil. The options have passed Check. All goroutines and processes have ended when
// Run returns.
func Run(ctx context.Context, o Options) error {
	site := pages{showOutput: o.Output}
	var tasks []func(context.Context)
	for i, text := range o.Commands {
		run, err := newCommand(text)
		if err != nil {
			return fmt.Errorf("-cmd number %d: %w", i+1, err)
		}
		c := &check{url: o.URLs[i], program: program(text), run: run, latency: o.Latency}
		c.log = o.Log.With("url", c.url, "command", c.program)
		site.checks = append(site.checks, c)
		tasks = append(tasks, func(ctx context.Context) { c.repeat(ctx, o.Period, o.Timeout) })
	}
	return status.Run(ctx, o.Listen, "see -addr and -port", o.Log, site, tasks...)
}
