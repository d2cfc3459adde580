package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/compat/nodecache"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/node/capture"
	"github.com/seamark/seamark/node/supervisor"
	"github.com/seamark/seamark/node/tcx"
	"github.com/seamark/seamark/observe/status"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/sandbox"
	"github.com/spf13/cobra"
)

func (p *program) nodeCommand() *cobra.Command {
	options := nodecache.DefaultFlags()
	port := flags.Port(options.Port)
	var plugins, printCorefile bool
	c := &cobra.Command{
		Use:     "node",
		Aliases: []string{"node-cache"},
		Short:   "Run the DNS cache of a node, with the flags of NodeLocal DNSCache",
		Long: `Node replaces node-cache, the program of NodeLocal DNSCache: flags, the template
Corefile.base with its variables, stub domains and upstreams of the ConfigMap kube-dns,
ports and metrics are the same. It adds the local addresses to a dummy interface and
exempts their packets from connection tracking, with rules that the kernel removes
when the process ends, however it ends. IPv4 and IPv6 are served by one process, which
keeps no capability but NET_BIND_SERVICE: see -sandbox.
Flags may start with one dash or two. A command line with -localip needs no "node".`,
		Example: `  seamark node -localip 169.254.20.10,10.96.0.10 -conf /etc/Corefile -upstreamsvc kube-dns-upstream
  seamark node -localip 169.254.20.10 -print-corefile
  seamark node cleanup`,
		Args: arguments(0, 0),
	}

	f := c.Flags()
	options.AddFlags(f)
	f.VarP(&port, "dns.port", "p", "`PORT` of server blocks without one, exempt from connection tracking")
	p.admin.flag(c)
	f.BoolVar(&plugins, "plugins", false, "list the directives of a Corefile")
	f.BoolVar(&printCorefile, "print-corefile", false,
		"print the Corefile for these flags, the template and the ConfigMap, and exit")
	klog := flags.AddKlog(f)

	p.replaces(c, func([]string) error {
		if plugins {
			return p.showDirectives()
		}

		options.Port = uint16(port)
		// A worker has the method of the supervisor, which the Corefile may contradict since.
		if method := supervisor.Passed(); method != "" {
			options.Capture = method
		} else if err := options.SelectCapture(f.Changed("capture")); err != nil {
			return failure{err}
		}
		if err := options.Check(); err != nil {
			return err
		}

		if printCorefile {
			text, err := options.ReadConfig(os.Getenv)
			if err != nil {
				return failure{err}
			}
			_, err = fmt.Fprint(p.out, text)
			return err
		}
		return p.node(c.Context(), options, klog)
	})
	p.add(c, command{p.nodeCleanupCommand(), ends})
	return c
}

func (p *program) nodeCleanupCommand() *cobra.Command {
	options := nodecache.DefaultFlags()
	port := flags.Port(options.Port)
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what ended processes have left on the node",
		Long: `Cleanup removes the interface of seamark node or of node-cache, the addresses and BPF
filters that seamark node has added, and the rules of node-cache in the tables of iptables-nft. It
refuses to do so while a process serves the addresses.`,
		Args: arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			o := capture.Options{Interface: options.Interface, Port: uint16(port)}
			if options.LocalIPs != "" {
				var err error
				if o.Addresses, err = options.Addresses(); err != nil {
					return err
				}
			}
			return p.cleanUpNode(o)
		},
	}

	f := c.Flags()
	f.StringVar(&options.Interface, "interfacename", options.Interface, "`NAME` of the interface")
	f.StringVar(&options.LocalIPs, "localip", "",
		"`IP,...` to remove (default all that seamark node has added, and all of the interface)")
	f.VarP(&port, "dns.port", "p", "`PORT` of DNS, at which no process may serve")
	return c
}

// cleanUpNode removes what ended processes have left, and prints it.
func (p *program) cleanUpNode(o capture.Options) error {
	removed, remaining, err := capture.Cleanup(o)
	if err == nil {
		var filters int
		if filters, err = tcx.RemoveLeftovers(); filters > 0 {
			removed = append(removed, capture.Leftover(fmt.Sprintf("%d BPF filters of interfaces", filters)))
		}
	}

	// What was removed before an error, too.
	for _, l := range removed {
		fmt.Fprintln(p.out, "Removed", l)
	}
	for _, l := range remaining {
		fmt.Fprintln(p.out, "Note:", l)
	}
	if err != nil {
		return failure{err}
	}
	if len(removed) == 0 {
		fmt.Fprintln(p.out, "Nothing to remove")
	}
	return nil
}

// isNodeCache reports whether the arguments are those of node-cache, which has no
// subcommands: flags, with one that only node-cache has.
func isNodeCache(args []string) bool {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return false
	}
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		if strings.HasPrefix(arg, "-") && name == "localip" {
			return true
		}
	}
	return false
}

// serveNode answers queries. The worker is nil if there is no supervisor.
func (p *program) serveNode(
	ctx context.Context, options nodecache.Flags, klog *flags.Klog, worker *nodeWorker,
) error {
	out := newOutput(p.err)
	defer out.Stop()
	log := klogLogger(out, klog, false)
	for _, note := range options.Notes() {
		log.Warn("Flag has another meaning than in node-cache", "reason", note)
	}

	logPrivileges(log)

	o := p.options(log)
	// One reader serves all pods: its batches are larger, and a flood uses one processor of the
	// node at most.
	o.Port, o.Readers = options.Port, 1
	count := setupErrors(o.Metrics, worker)
	last := ""
	if worker != nil {
		last = worker.LastText()
	}
	f, err := nodecache.NewFollower(options, os.Getenv, planned(o), log, count("configmap"), last)
	if err != nil {
		return err
	}
	defer f.Stop()

	r := server.Run{
		Options: o, Node: true, Read: sameCapture(f.Read, options.Capture, log), Changed: f.Changed(),
		Greeting: p.build.String(), Signals: p.signals, PIDFile: options.PIDFile,
	}
	if worker != nil {
		r.Accepted = func(text []byte) {
			f.Accept()
			if err := worker.KeepText(text); err != nil {
				log.Warn("Failed to keep the Corefile for another process", "error", err)
			}
		}
	}
	if !options.Quiet {
		r.Out = out
	}
	end, err := p.openNode(&r, options, worker, func(kind string) { count(kind).Add(1) })
	if err != nil {
		return err
	}
	defer end()

	started := r.Started
	r.Started = func() {
		if started != nil {
			started()
		}
		collectOften() // not before: queries wait for the end of the start
		supervisor.ReleaseMemory()
	}

	ctx, cancel := context.WithCancel(ctx)
	var pages sync.WaitGroup
	defer pages.Wait()
	defer cancel()
	pages.Go(func() { p.setupPages(ctx, options.MetricsAddress, &r) })
	return r.Serve(ctx)
}

// logPrivileges logs what the process that answers queries may do.
func logPrivileges(log *slog.Logger) {
	p := sandbox.Current()
	log.Info("Queries are answered with these privileges", "capabilities", strings.Join(p.Capabilities, ","),
		"no_new_privs", p.NoNewPrivs, "seccomp", p.Seccomp)
}

// sameCapture returns a function that reads the Corefile, and logs once that a value of the
// directive capture other than the one at the start has no effect.
func sameCapture(read func() corefile.Reading, used string, log *slog.Logger) func() corefile.Reading {
	warned := ""
	return func() corefile.Reading {
		r := read()
		d, err := nodecache.CaptureIn(r.Servers)
		switch {
		case err != nil:
			r.Err = errors.Join(r.Err, err)
		case d == nil || d.Args[0].Text == used:
			warned = ""
		case d.Args[0].Text != warned:
			warned = d.Args[0].Text
			log.Warn("Changed directive has no effect before the next start of the pod",
				"directive", "capture", "value", warned, "capture", used)
		}
		return r
	}
}

// captureErrors are the kinds of errors that a Capture counts.
var captureErrors = []string{capture.ErrorRules, capture.ErrorInterfaceAdd, capture.ErrorInterfaceCheck}

// setupErrors returns the counters of setup errors. Each exists before the first error.
// Those of a Capture are counted by the supervisor if there is one.
func setupErrors(m *metrics.Registry, w *nodeWorker) func(kind string) *metrics.Counter {
	const (
		name = "coredns_nodecache_setup_errors_total"
		help = "Errors of the interface, of the rules for its addresses and of kube-dns's ConfigMap."
	)
	counter := func(kind string) *metrics.Counter { return m.Counter(name, help, "errortype", kind) }
	counter("configmap").Add(0)
	counter("iptables_lock").Add(0)
	for i, kind := range captureErrors {
		if w == nil {
			counter(kind).Add(0)
		} else {
			m.CounterFunc(name, help, func() float64 { return float64(w.Count(i)) }, "errortype", kind)
		}
	}
	return counter
}

// collectOften makes Go's garbage collector run when the heap has grown by a quarter, in place
// of the whole. Most memory of a node's cache are answers, and it makes little garbage; its
// supervisor has little memory at all. The environment variable GOGC takes precedence.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
}

// NodeTimes are times of the command node that its tests change. Zero means the default.
type NodeTimes struct {
	tcx.Times
	Pause time.Duration // that of capture.Options
	Pages time.Duration // between two attempts to open the address of the metrics (5 s)
}

// setupPages serves the metrics of setup errors. DNS does not depend on them. During an upgrade
// the previous process may still use the address.
func (p *program) setupPages(ctx context.Context, address string, r *server.Run) {
	retry := cmp.Or(p.times.Pages, 5*time.Second)
	for warned := false; ; {
		err := status.Run(ctx, address, "set -metrics-listen-address", r.Log, status.Metrics(r.Metrics))
		if err != nil && !warned {
			warned = true
			r.Log.Warn("Metrics of setup errors are not served, trying again", "interval", retry, "error", err)
		}
		if !clock.Sleep(ctx, retry) {
			return
		}
	}
}

// An exitStatus is that of a child process, which has reported the error.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }
