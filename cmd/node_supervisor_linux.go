package cmd

import (
	"context"
	"os"
	"slices"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/compat/nodecache"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/nftset"
	"github.com/seamark/seamark/node/supervisor"
	"github.com/seamark/seamark/node/tcx"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/nftables"
	"github.com/seamark/seamark/transport"
)

// The numbers that a Capture counts after these.
const (
	countPrograms = 8 + iota // 1 if programs capture queries
	countQueries             // those of tcx.Counters
	countReplies
	countInterfaces
	countPaused
)

// A nodeWorker is the process that answers queries.
type nodeWorker = supervisor.Worker

// node runs the cache of a node, in this process or in a child process.
func (p *program) node(ctx context.Context, options nodecache.Flags, klog *flags.Klog) error {
	worker, err := supervisor.Connect()
	if err != nil {
		return failure{err}
	}
	switch {
	case worker != nil:
	case options.Capture == nodecache.CaptureNone:
		if err := p.executeRestricted(options.Sandbox, klog); err != nil {
			return failure{err}
		}
	case options.Supervise:
		return p.superviseNode(options, klog)
	}
	return failed(p.serveNode(ctx, options, klog, worker))
}

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
func writeSets(r *server.Run, w *nodeWorker, options nodecache.Flags) {
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

// prepareWorker prepares a server in the child process.
// end releases what it has opened.
func (p *program) prepareWorker(r *server.Run, w *nodeWorker, options nodecache.Flags) (end func(), err error) {
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
