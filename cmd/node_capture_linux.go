package cmd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/seamark/seamark/compat/nodecache"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/node/capture"
	"github.com/seamark/seamark/node/tcx"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
)

// A nodeCapture is what makes queries of pods reach the server: a supervisor.Capture.
type nodeCapture struct {
	aliases   map[netip.Addr]netip.Addr // by the ClusterIP; none without programs
	addresses *capture.Capture
	programs  *tcx.Capture // nil without programs
	beat      *tcx.Beat
	repeat    bool         // replies
	task      *follow.Task // heartbeat and counters
}

// openNode prepares the node, so that queries of pods reach r once it has started. end reverts
// that.
func (p *program) openNode(
	r *server.Run, options nodecache.Flags, worker *nodeWorker, count func(kind string),
) (end func(), err error) {
	if worker != nil {
		writeSets(r, worker, options)
	}
	// Nothing changes on the node for an invalid Corefile. For a worker with sockets the node is
	// as the worker before needed it, and queries wait: a check would delay them.
	if worker == nil || len(worker.Sockets()) == 0 {
		if _, err := r.Check(); err != nil {
			return nil, err
		}
	}
	if worker != nil {
		return p.prepareWorker(r, worker, options)
	}
	if options.Capture == nodecache.CaptureNone {
		return func() {}, nil
	}

	network, err := openCapture(options, p.times, r.Log, count)
	if err != nil {
		return nil, err
	}
	r.Started, r.Stopping = network.Enable, network.Disable
	listenAt(r, network.aliases)
	if network.programs != nil {
		countPackets(r.Metrics, network.programs.Counters)
	}
	forget, err := p.repeatReplies(r, network.Files(), network.aliases, options)
	if err != nil {
		network.Close()
		return nil, err
	}
	return func() {
		forget()
		network.Close()
	}, nil
}

// openCapture adds addresses, and attaches programs if the flags or the kernel say so.
// Queries are captured from Enable on.
func openCapture(
	f nodecache.Flags, times NodeTimes, log *slog.Logger, count func(kind string),
) (*nodeCapture, error) {
	n := &nodeCapture{repeat: f.RepeatReplies}
	local, err := f.Addresses()
	if err != nil {
		return nil, err
	}

	switch removed, err := tcx.RemoveLeftovers(); {
	case err != nil:
		log.Warn("Filters of earlier processes are left on the node, where they capture nothing", "error", err)
	case removed > 0:
		log.Info("Removed filters that earlier processes have left", "count", removed)
	}

	method := captureMethod(f, log)
	var clusterIPs []netip.Addr // on the node
	if method == nodecache.CaptureAddress {
		clusterIPs = f.ClusterIPs()
	} else {
		n.aliases, local = aliasesOf(f)
		if err := n.attach(f, method, times.Times, log); err != nil {
			return nil, err
		}
	}

	n.addresses, err = capture.Open(capture.Options{
		Interface: f.Interface, Addresses: local, ClusterIPs: clusterIPs, Port: f.Port, HealthPort: f.HealthPort,
		SetInterface: f.SetupInterface, SetRules: f.SetupIptables, KeepInterface: f.SkipTeardown,
		Interval: f.SyncInterval, Pause: times.Pause, Log: log, CountSetupError: count,
	})
	if err != nil {
		n.detach()
		return nil, err
	}
	return n, nil
}

// captureMethod decides how queries are captured, and logs why.
func captureMethod(f nodecache.Flags, log *slog.Logger) string {
	if f.Capture != nodecache.CaptureAuto {
		return f.Capture
	}

	var err error
	switch {
	case len(f.ClusterIPs()) == 0:
		err = errors.New("-localip has no ClusterIP")
	case f.TooManyClusterIPs() != nil:
		err = f.TooManyClusterIPs()
	case !f.FirstLinkLocal():
		err = errors.New("the first address of -localip is not link-local, and probes of the kubelet may use it:" +
			" it has to be on the node")
	case !f.SetupInterface:
		err = errors.New("-setupinterface=false: there are no aliases")
	default:
		method, reason := nodecache.CaptureTCX, errors.New("the kernel supports it")
		var support tcx.Support
		if support, err = tcx.Probe(); support != tcx.Supported {
			method, reason = nodecache.CaptureClsact, err
			support, _ = tcx.ProbeClsact()
		}
		if support == tcx.Supported {
			log.Info("Queries are captured at the interfaces of pods", "capture", method, "reason", reason)
			return method
		}
	}
	log.Info("Queries are captured by local addresses", "capture", nodecache.CaptureAddress, "reason", err)
	return nodecache.CaptureAddress
}

// aliasesOf returns an alias for each ClusterIP, and the local addresses with the aliases
// in place of the ClusterIPs.
func aliasesOf(f nodecache.Flags) (aliases map[netip.Addr]netip.Addr, local []netip.Addr) {
	aliases = map[netip.Addr]netip.Addr{}
	clusterIPs := f.ClusterIPs()
	all, _ := f.Addresses() // Check reports the error
	for _, ip := range all {
		if !slices.Contains(clusterIPs, ip) {
			local = append(local, ip)
		}
	}
	for _, ip := range clusterIPs {
		for i := 0; ; i++ {
			if alias := tcx.AliasFor(ip, i); !slices.Contains(local, alias) {
				aliases[ip] = alias
				local = append(local, alias)
				break
			}
		}
	}
	return aliases, local
}

// listenAt makes the server listen at aliases in place of ClusterIPs.
func listenAt(r *server.Run, aliases map[netip.Addr]netip.Addr) {
	read := r.Read
	r.Read = func() corefile.Reading { return nodecache.ListenAt(read(), aliases) }
}

// attach attaches the programs, and stamps their heartbeat until close.
func (n *nodeCapture) attach(f nodecache.Flags, method string, times tcx.Times, log *slog.Logger) (err error) {
	times.Reached = cmp.Or(times.Reached, f.RepeatReached)
	o := tcx.Options{
		Port: f.Port, Interfaces: f.PodInterfaces, Clsact: method == nodecache.CaptureClsact,
		Foreign: f.CaptureForeign, Times: times, Log: log,
	}
	for cluster, alias := range n.aliases {
		o.Pairs = append(o.Pairs, tcx.Pair{Cluster: cluster, Alias: alias})
	}
	if n.programs, err = tcx.Open(o); err != nil {
		return err
	}
	if n.beat, err = tcx.OpenBeat(n.programs.Heartbeat()); err != nil {
		n.programs.Close()
		return err
	}
	n.task = follow.Go(beats(n.beat.Stamp))
	return nil
}

// beats returns a function that calls f at the interval of the heartbeat until its context ends.
func beats(f func()) func(context.Context) {
	return func(ctx context.Context) {
		for range clock.Together(ctx, tcx.BeatInterval) {
			f()
		}
	}
}

// report adds the numbers of the programs to those of the supervisor.
func (n *nodeCapture) report(count func(index int, n uint64)) {
	if n.programs == nil {
		return
	}
	count(countPrograms, 1)
	var before tcx.Counters
	n.task.Go(beats(func() {
		now := n.programs.Counters()
		count(countQueries, now.Queries-before.Queries)
		count(countReplies, now.Replies-before.Replies)
		count(countInterfaces, now.Interfaces-before.Interfaces) // modulo 2^64
		count(countPaused, now.Paused-before.Paused)
		before = now
	}))
}

// countPackets adds the numbers of the programs to the metrics.
func countPackets(m *metrics.Registry, counters func() tcx.Counters) {
	m.CounterFunc("seamark_node_capture_query_packets_total", "Packets of pods whose destination was replaced.",
		func() float64 { return float64(counters().Queries) })
	m.CounterFunc("seamark_node_capture_reply_packets_total", "Packets to pods whose source was replaced.",
		func() float64 { return float64(counters().Replies) })
	m.Gauge("seamark_node_capture_interfaces", "Interfaces of pods with the programs.",
		func() float64 { return float64(counters().Interfaces) })
	m.Gauge("seamark_node_capture_paused_interfaces", "Interfaces of pods that replies over IPv4 or IPv6"+
		" do not pass to, whose queries over it go to the cluster's DNS servers.",
		func() float64 { return float64(counters().Paused) })
}

// Files returns the files for repeatReplies, none if no replies are repeated.
func (n *nodeCapture) Files() []*os.File {
	if n.programs == nil || !n.repeat {
		return nil
	}
	return n.programs.ReplyFiles()
}

// repeatReplies makes the programs of the files repeat replies of r to queries to the aliases. It returns a
// function that ends it. Without files no replies are repeated, and the status has the reason if they should be.
func (p *program) repeatReplies(
	r *server.Run, files []*os.File, aliases map[netip.Addr]netip.Addr, f nodecache.Flags,
) (end func(), err error) {
	if len(files) == 0 {
		if f.RepeatReplies && len(aliases) > 0 {
			shared(r).Health.Set(r, "repeat", health.Condition{
				Severity: health.Note, Object: "kernel", Text: "the kernel repeats no replies, as it has no array for them",
				Next: "look for the error in the log of the start",
			})
		}
		return func() {}, nil
	}
	replies, err := tcx.OpenReplies(files, slices.Collect(maps.Values(aliases)), f.Port, p.times.Times)
	if err != nil {
		return nil, err
	}
	r.Repeater = replies
	r.Metrics.CounterFunc("seamark_node_repeated_replies_total",
		"Queries of pods that the kernel has answered with an earlier reply of the server.",
		func() float64 { return float64(replies.Total()) })
	r.Metrics.CounterFunc("seamark_node_lost_samples_total",
		"Samples of repeated replies that were lost: the next one stands for them.",
		func() float64 { return float64(replies.LostSamples()) })
	return replies.Close, nil
}

// Enable captures queries: the server answers.
func (n *nodeCapture) Enable() {
	if n.programs != nil {
		n.programs.Enable()
	}
	n.addresses.Enable() // last: another instance then captures no more
}

// Suspend captures no queries until Enable is called.
func (n *nodeCapture) Suspend() {
	if n.programs != nil {
		n.programs.Disable()
	}
	n.addresses.Suspend()
}

// Disable captures no more queries. If another instance is about to serve, its capture
// comes first.
func (n *nodeCapture) Disable() {
	n.addresses.Disable()
	if n.programs != nil {
		n.programs.Disable()
	}
}

// Close removes the programs and the addresses.
func (n *nodeCapture) Close() {
	n.detach()
	n.addresses.Close()
}

// detach removes the programs.
func (n *nodeCapture) detach() {
	if n.programs != nil {
		n.task.Stop()
		n.beat.Close()
		n.programs.Close()
	}
}
