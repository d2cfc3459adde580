// Package healthz is the last container of the first kube-dns pods: it runs
// commands, and says over HTTP whether they succeed, so that a kubelet can probe
// what speaks no HTTP. Package cmd calls it for the subcommand exec-healthz; flags
// and pages are in docs/reference/exec-healthz.md. It knows nothing of DNS but the
// one question that such a pod's manifest asks, knows no Kubernetes, and no server
// of ours depends on it.
package healthz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

// Options is what the flags say.
type Options struct {
	Commands []string      // what is run
	URLs     []string      // where the state of each of them is
	Listen   string        // HOST:PORT of the pages
	Period   time.Duration // from one run of a command to the next
	Latency  time.Duration // how old a result may be
	Timeout  time.Duration // how long a command may run
	Output   bool          // pages show what the command has written
	Log      *slog.Logger
}

// Check says what is wrong with the options, in terms of the flags.
func (o *Options) Check() error {
	var wrong []error
	if len(o.Commands) != len(o.URLs) {
		wrong = append(wrong, fmt.Errorf("want as many -url as -cmd, got %d and %d", len(o.URLs), len(o.Commands)))
	}
	for _, text := range o.Commands {
		if _, err := newCommand(text); err != nil {
			wrong = append(wrong, fmt.Errorf("-cmd %q: %w", text, err))
		}
	}
	seen := map[string]bool{}
	for _, url := range o.URLs {
		switch {
		case !strings.HasPrefix(url, "/") || strings.ContainsAny(url, "?#% \t\n"):
			wrong = append(wrong, fmt.Errorf("-url: want a path such as /healthz, got %q", url))
		case url == indexPath:
			wrong = append(wrong, errors.New("-url: / is the list of all commands"))
		case seen[url]:
			wrong = append(wrong, fmt.Errorf("two commands have -url %s: give each one of its own", url))
		}
		seen[url] = true
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"period", o.Period}, {"latency", o.Latency}, {"timeout", o.Timeout}} {
		if d.value < time.Millisecond {
			wrong = append(wrong, fmt.Errorf("-%s: want at least 1ms, got %v", d.flag, d.value))
		}
	}
	if o.Latency < o.Period {
		wrong = append(wrong, fmt.Errorf("-latency: want at least the period, %v, got %v: results would be too old before the next run", o.Period, o.Latency))
	}
	return errors.Join(wrong...)
}

// Run runs the commands, and serves the pages, until ctx ends, which is no error.
// The options have passed Check. It waits for what it has started, and leaves no
// process behind.
func Run(ctx context.Context, o Options) error {
	var checks []*check
	for i, text := range o.Commands {
		run, err := newCommand(text)
		if err != nil {
			return fmt.Errorf("-cmd %q: %w", text, err)
		}
		checks = append(checks, &check{url: o.URLs[i], text: text, run: run, latency: o.Latency, log: o.Log})
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("serving pages: %w: see -addr and -port", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()

	o.Log.Info("exec-healthz serves", "address", listener.Addr())
	for _, c := range checks {
		all.Go(func() { c.every(ctx, o.Period, o.Timeout) })
	}
	server := pages{checks, o.Output}.server()
	served := make(chan error, 1)
	all.Go(func() { served <- server.Serve(listener) })
	select {
	case <-ctx.Done():
		_ = server.Close() // a page that is being read is cut off: there is nothing to save
		return nil
	case err := <-served:
		return fmt.Errorf("serving pages: %w", err)
	}
}
