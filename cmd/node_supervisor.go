package cmd

import (
	"fmt"
	"os"
	"slices"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/compat/nodecache"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/nftset"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/node/capture"
	"github.com/seamark/seamark/node/supervisor"
	"github.com/seamark/seamark/node/tcx"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/nftables"
	"github.com/seamark/seamark/transport"
)

// captureErrors are the kinds of errors that a Capture counts.
var captureErrors = []string{capture.ErrorRules, capture.ErrorInterfaceAdd, capture.ErrorInterfaceCheck}

// The numbers that a Capture counts after these.
const (
	countPrograms = 8 + iota // 1 if programs capture queries
	countQueries             // those of tcx.Counters
	countReplies
	countInterfaces
	countPaused
)

// superviseNode runs the cache of a node in a child process.
func (p *program) superviseNode(options nodecache.Flags, klog *flags.Klog) error {
	out := newOutput(p.err)
	log := server.NewLog(out, klog.Level()) // the worker logs ignored flags
	collectOften()

	exit, err := supervisor.Run(supervisor.Options{
		Log:      log,
		Pass:     options.Capture,
		Restrict: func() error { return restrict(options.Sandbox, log) },
		Attach:   serveSets(options),
		Open: func(count func(index int, n uint64)) (supervisor.Capture, error) {
			c, err := openCapture(options, p.times, log, func(kind string) {
				count(slices.Index(captureErrors, kind), 1)
			})
			if err != nil {
				return nil, err
			}
			c.report(count)
			return c, nil
		},
	}, func() bool {
		p.signals.Release()
		return p.signals.Context.Err() != nil
	})

	// The message of the end of a worker is written before a signal ends this process.
	out.Stop()
	exit.Raise()
	switch {
	case err != nil:
		return failure{err}
	case exit.Signal != 0:
		return exitStatus(128 + exit.Signal) // as a shell reports it
	case exit.Code != 0:
		return exitStatus(exit.Code)
	}
	return nil
}

// serveSets returns the function that writes to sets of nftables for a worker; nil if it may write to none.
func serveSets(options nodecache.Flags) func(*os.File) {
	if len(options.Sets()) == 0 {
		return nil
	}
	return func(f *os.File) { nftables.Serve(f, options.Sets()) }
}

// writeSets makes the directive nftset of r write by the supervisor. It is called before r checks the Corefile.
func writeSets(r *server.Run, w *supervisor.Worker, options nodecache.Flags) {
	var conn *os.File
	if len(options.Sets()) > 0 {
		conn = w.Attached()
	}
	remote := nftables.NewRemote(conn, options.Sets())
	nftset.WriteBy(shared(r), func() (nftset.Writer, error) { return remote, nil })
}

// shared returns what the plans of r share.
func shared(r *server.Run) *config.Shared {
	if r.Shared == nil {
		r.Shared = new(config.Shared)
	}
	return r.Shared
}

// An exitStatus is that of a child process, which has reported the error.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// nodeWorker prepares a server in the child process.
// end releases what it has opened.
func (p *program) nodeWorker(r *server.Run, w *supervisor.Worker, options nodecache.Flags) (end func(), err error) {
	if sockets := w.Sockets(); len(sockets) > 0 {
		r.Inherited = new(transport.Inherited)
		if err := r.Inherited.Add(false, sockets...); err != nil {
			return nil, err
		}
	}

	r.Supervisor, r.PID = w, os.Getppid()
	r.Started, r.Stopping = w.Serving, w.Stopping

	r.Metrics.CounterFunc("seamark_node_worker_restarts_total",
		"Starts of the process that answers queries, without the first.",
		func() float64 { return float64(w.State().Restarts) })
	r.Metrics.Gauge("seamark_node_gate_open", "1 if queries to a ClusterIP are sent to this node's cache.",
		func() float64 {
			if w.State().Open {
				return 1
			}
			return 0
		})
	r.Metrics.Gauge("seamark_node_heartbeat_age_seconds",
		"Time since the last heartbeat of the process that answers queries.",
		func() float64 { return w.State().HeartbeatAge.Seconds() })

	if err := w.Open(); err != nil {
		return nil, err
	}
	if w.Count(countPrograms) == 0 {
		return func() {}, nil
	}
	aliases, _ := aliasesOf(options)
	listenAt(r, aliases)
	if end, err = p.repeatReplies(r, w.Files(), aliases, options); err != nil {
		return nil, err
	}
	countPackets(r.Metrics, func() tcx.Counters {
		return tcx.Counters{
			Queries: w.Count(countQueries), Replies: w.Count(countReplies),
			Interfaces: w.Count(countInterfaces), Paused: w.Count(countPaused),
		}
	})
	return end, nil
}

// setupErrors returns the counters of setup errors. Each exists before the first error.
// Those of a Capture are counted by the supervisor if there is one.
func setupErrors(m *metrics.Registry, w *supervisor.Worker) func(kind string) *metrics.Counter {
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
