//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The addresses of a node.
const (
	nodeLocal    = "169.254.20.10"
	nodeCluster  = "10.96.0.10"
	nodeUpstream = "127.0.0.1:5353"
)

// nodePods is the number of pods that send queries.
const nodePods = 3

// fullCache is the number of answers, and that of denials, that node-cache's manifest
// makes room for.
const fullCache = 9984

// nodeNames is the number of names that the pods ask for. The load before a measurement has
// each of them, at the lowest rate too: cached answers are measured, not what is forwarded.
const nodeNames = 100

// nodeSettle is the time after which memory is read: the processes release pages of the
// program's file once a minute.
const nodeSettle = 80 * time.Second

// nodePatience is the time in which a node's cache has to answer after its start.
const nodePatience = 20 * time.Second

// nodeCorefile returns the template of node-cache's manifest, for an upstream without TCP.
func nodeCorefile() string {
	block := func(zone, cache, more string) string {
		return lines(`
%s:53 {
    errors
    cache %s
    reload
    loop
    bind %s %s
    forward . %s
    prometheus :9253
%s}
`, zone, cache, nodeLocal, nodeCluster, nodeUpstream, more)
	}
	return block("cluster.local", "{\n        success 9984 30\n        denial 9984 5\n    }",
		"    health "+nodeLocal+":8080\n") +
		block("in-addr.arpa", "30", "") + block("ip6.arpa", "30", "") + block(".", "30", "")
}

// nodeRules are the rules of kube-proxy, which make the kernel track connections.
const nodeRules = `
table ip kube-proxy {
	chain services {
		type nat hook prerouting priority dstnat
		ip daddr ` + nodeCluster + ` udp dport 53 dnat to 10.0.255.2
	}
}
`

// nodeExempt are the rules of node-cache, without which connections would be tracked.
const nodeExempt = `
table ip nodelocaldns {
	chain prerouting {
		type filter hook prerouting priority raw
		ip daddr { ` + nodeLocal + `, ` + nodeCluster + ` } udp dport 53 notrack
	}
	chain output {
		type filter hook output priority raw
		ip saddr { ` + nodeLocal + `, ` + nodeCluster + ` } udp sport 53 notrack
	}
}
`

// A nodeServer is a cache of a node, or a lower bound of one, in a node of its own.
type nodeServer struct {
	label  string
	target string // the address that pods send queries to
	local  bool   // it needs the addresses on the node
	exempt bool   // it needs the rules of node-cache
	argv   []string
	*server
	*network
}

// nodeServers returns the contenders. The node of a contender that does not set it up itself has
// the rules of node-cache, except that capture none of Seamark has no rules.
func (b *bench) nodeServers(corefile, answers string) []*nodeServer {
	ours := func(capture string, more ...string) []string {
		return append([]string{b.binary, "node", "-capture", capture, "-localip", nodeLocal + "," + nodeCluster,
			"-conf", corefile, "-corefile", corefile + "." + capture, "-basecorefile", corefile, "-kubednscm",
			b.dir}, more...)
	}

	loop := func(more ...string) []string {
		return append([]string{b.self, "loop", "-listen", nodeCluster + ":53", "-table", answers}, more...)
	}

	all := []*nodeServer{
		{label: "tcx", target: nodeCluster, argv: ours("tcx")},
		{label: "tcx, not repeated", target: nodeCluster, argv: ours("tcx", "-repeat-replies=false")},
		{label: "address", target: nodeCluster, argv: ours("address")},
		{label: "none", target: nodeLocal, local: true, argv: ours("none")},
		{label: "loop", target: nodeCluster, local: true, exempt: true, argv: loop()},
		{label: "echo", target: nodeCluster, local: true, exempt: true, argv: loop("-blocking")},
	}

	switch {
	case b.nodecachePath != "":
		all = append(all, &nodeServer{label: "node-cache", target: nodeCluster,
			argv: []string{b.nodecachePath, "-localip", nodeLocal + "," + nodeCluster, "-conf",
				corefile + ".node-cache",
				"-corefile", corefile + ".node-cache", "-basecorefile", corefile}})
	case b.corednsPath != "":
		all = append(all, &nodeServer{label: "coredns", target: nodeCluster, local: true, exempt: true,
			argv: []string{b.corednsPath, "-conf", corefile}})
	default:
		b.miss("node: set -nodecache or COREDNS to a binary to compare with")
	}
	return all
}

// node measures the cache of a node: CPU for an answer to a pod at three loads, and memory
// with a full cache.
func (b *bench) node(ctx context.Context) error {
	defer b.stopServers()
	for _, program := range []string{"ip", "nft", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			b.miss("node: the program %s is not installed", program)
			return nil
		}
	}

	probe, err := newNamespace()
	if err != nil {
		b.miss("node: network namespaces may not be made: %v", err)
		return nil
	}

	probe.Close()
	if end, err := countPrograms(); err != nil {
		b.miss("node: the run time of BPF programs is not counted: %v", err)
	} else {
		defer end()
	}

	corefile, err := b.file("Corefile-node", nodeCorefile())
	if err != nil {
		return err
	}

	names, err := outsideTable(fullCache, fullCache)
	if err != nil {
		return err
	}

	answers, err := b.tableFile(names)
	if err != nil {
		return err
	}

	var lookups []*lookup
	for k := range nodeNames {
		lookups = append(lookups, outsideLookup(k))
	}

	var ready []*nodeServer
	for _, s := range b.nodeServers(corefile, answers) {
		err := b.startNode(ctx, s, answers)
		if s.network != nil {
			defer s.network.close()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}

		if err != nil {
			b.miss("node, %s: %v", s.label, err)
			continue
		}

		ready = append(ready, s)
	}

	for _, at := range []struct {
		scenario, title string
		rate            float64
	}{
		{"node", "the cache of a node, 100 outstanding queries of three pods", 0},
		{"node 20k", "the same, 20,000 queries a second", 20000},
		{"node 1k", "the same, 1,000 queries a second", 1000},
	} {
		var contenders []contender
		for _, s := range ready {
			l := s.load(b, lookups)
			if l.rate = at.rate; at.rate > 0 && at.rate < 5000 {
				l.time *= 2
			}
			contenders = append(contenders, contender{s.label, s.server, l})
		}

		if err := b.compare(ctx, at.scenario, at.title, contenders); err != nil {
			return err
		}
	}

	return b.nodeMemory(ctx, ready)
}

// load returns a load from the pods of the node.
func (s *nodeServer) load(b *bench, lookups []*lookup) load {
	return load{to: s.addr, lookups: lookups, transport: overUDP, sockets: 8 * nodePods, window: 100, time: b.time,
		cpu: b.generatorCPU(), namespaces: s.pods}
}

// nodeMemory fills the caches and reads the memory of their processes after a while.
func (b *bench) nodeMemory(ctx context.Context, servers []*nodeServer) error {
	lookups := fullCacheLookups()
	servers = without(servers, "loop", "echo")
	for _, s := range servers {
		l := s.load(b, lookups)
		l.rate, l.time = 5000, time.Duration(len(lookups)+100)*time.Second/5000
		if t, err := l.run(ctx); err != nil {
			return err
		} else if t.wrong > 0 {
			b.miss("node memory, %s: %d wrong answers: %s", s.label, t.wrong, t.example)
		}
	}

	wait := b.settle()
	if !b.quick {
		wait = nodeSettle
	}
	if err := pause(ctx, wait); err != nil {
		return err
	}

	for _, s := range servers {
		var resident, anonymous, share int64
		for _, pid := range processes(s.pid()) {
			f, err := memory(pid)
			if err != nil {
				return err
			}

			pss, err := proportional(pid)
			if err != nil {
				return err
			}
			if f.resident > resident {
				resident, anonymous = f.resident, f.anonymous
			}

			share += pss
		}

		b.megabytes("node memory/"+s.label, "node's cache full, resident, "+s.label, resident)
		b.megabytes("node anonymous/"+s.label, "of that not of the binary, "+s.label, anonymous)
		b.megabytes("node share/"+s.label, "proportional share of all its processes, "+s.label, share)
	}

	return nil
}

func without(servers []*nodeServer, labels ...string) (out []*nodeServer) {
	for _, s := range servers {
		if !strings.Contains(strings.Join(labels, ","), s.label) {
			out = append(out, s)
		}
	}
	return out
}

// fullCacheLookups returns a query for each answer and each denial of a full cache.
func fullCacheLookups() (lookups []*lookup) {
	for k := range fullCache {
		lookups = append(lookups, outsideLookup(k), deniedLookup(k))
	}
	return lookups
}

// startNode makes a node with an upstream and the server, and waits until the server
// answers a pod.
func (b *bench) startNode(ctx context.Context, s *nodeServer, answers string) (err error) {
	if s.network, err = newNetwork(s.local, s.exempt); err != nil {
		return err
	}
	upstream := netip.MustParseAddrPort(nodeUpstream)
	if _, err := b.spawn("upstream", upstream,
		inside(s.node, b.self, "loop", "-listen", nodeUpstream, "-table", answers, "-upstream")...); err != nil {
		return err
	}
	if s.server, err = b.spawn(s.label, netip.AddrPortFrom(netip.MustParseAddr(s.target), 53),
		inside(s.node, s.argv...)...); err != nil {
		return err
	}
	waiting, stop := context.WithTimeout(ctx, nodePatience)
	defer stop()
	err = within(s.pods[0], func() error { return s.await(waiting, b.work["cached"].lookups[0]) })
	if waiting.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %v: %s", nodePatience, s.tail())
	}
	return err
}

// A network is the network namespaces of a node and its pods.
type network struct {
	node *os.File
	pods []*os.File
}

// newNetwork makes a node with pods and the rules of kube-proxy, and with the addresses and
// the rules of node-cache.
func newNetwork(addresses, exempt bool) (_ *network, err error) {
	n := new(network)
	defer func() {
		if err != nil {
			n.close()
		}
	}()

	if n.node, err = newNamespace(); err != nil {
		return nil, err
	}

	setup, rules := "link set lo up\n", nodeRules
	if addresses {
		setup += "addr add " + nodeLocal + "/32 dev lo\naddr add " + nodeCluster + "/32 dev lo\n"
	}
	if exempt {
		rules += nodeExempt
	}

	for i := range nodePods {
		pod, err := newNamespace()
		if err != nil {
			return nil, err
		}
		n.pods = append(n.pods, pod)
		setup += fmt.Sprintf("link add pod%d type veth peer name eth0 netns %s\naddr add 10.0.%d.1/24 dev pod%d\nlink set pod%d up\n", i, pathOf(pod), i, i, i)
	}

	setup += "route add 10.0.255.0/24 via 10.0.0.2\n"
	if err := runIn(n.node, setup, "ip", "-batch", "-"); err != nil {
		return nil, err
	}
	if err := runIn(n.node, rules, "nft", "-f", "-"); err != nil {
		return nil, err
	}

	err = within(n.node, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) })
	for i, pod := range n.pods {
		if err == nil {
			err = runIn(pod, fmt.Sprintf("link set lo up\naddr add 10.0.%d.2/24 dev eth0\nlink set eth0 up\nroute add default via 10.0.%d.1\n", i, i), "ip", "-batch", "-")
		}
	}
	return n, err
}

// close removes the namespaces, once their processes have ended.
func (n *network) close() {
	for _, f := range append(n.pods, n.node) {
		if f != nil {
			f.Close()
		}
	}
}

// newNamespace makes a network namespace, which lasts until the file is closed.
func newNamespace() (*os.File, error) {
	var f *os.File
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	})
	return f, err
}

// within runs a function on a thread in a namespace. Its sockets belong to it.
func within(ns *os.File, f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return f()
	})
}

// onThread runs a function on a thread of its own, which ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and no more unlocked
		done <- f()
	}()
	return <-done
}

func pathOf(ns *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()) }

// inside returns the command that runs a command in a namespace.
func inside(ns *os.File, argv ...string) []string {
	return append([]string{"nsenter", "--net=" + pathOf(ns)}, argv...)
}

// runIn runs a command in a namespace.
func runIn(ns *os.File, stdin string, argv ...string) error {
	argv = inside(ns, argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, text)
	}
	return nil
}

// proportional returns the memory of a process in which a shared page counts for each
// process by its part.
func proportional(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), "\nPss:")
	fields := strings.Fields(after)
	if len(fields) == 0 {
		return 0, fmt.Errorf("/proc/%d/smaps_rollup: no Pss", pid)
	}
	n, err := strconv.ParseInt(fields[0], 10, 64)
	return n << 10, err
}
