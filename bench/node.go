//go:build linux

package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
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
// each of them, at the lowest rate too: cached answers are measured, not what is forwarded. Answers expire
// after 30 s, while others are measured.
const nodeNames = 100

// nodeSettle is the time after which memory is read: the processes release pages of the
// program's file once a minute.
const nodeSettle = 80 * time.Second

// nodePatience is the time in which a node's cache has to answer after its start.
const nodePatience = 20 * time.Second

// nodeValues are the values of the templates node.Corefile, the template of node-cache's manifest for
// an upstream without TCP, and node.nft.
func nodeValues() map[string]any {
	return map[string]any{"local": nodeLocal, "cluster": nodeCluster, "upstream": nodeUpstream,
		"zones": []string{"in-addr.arpa", "ip6.arpa", "."}}
}

// A nodeServer is a cache of a node, or a lower bound of one, in a node of its own.
type nodeServer struct {
	label  string
	target string // the address that pods send queries to
	local  bool   // it needs the addresses on the node
	exempt bool   // it needs the rules of node-cache
	argv   []string
	api    string // the address of this machine's loopback interface that it reaches at the same address
}

// nodeFixed returns a contender that gives the one lookup of the workload node one its reply of a table.
func (b *bench) nodeFixed(names table) nodeServer {
	interfaces := []string{}
	for i := range nodePods {
		interfaces = append(interfaces, fmt.Sprintf("pod%d", i))
	}
	reply := names[string(b.work["node one"].lookups[0].packet[12:])]
	argv := []string{b.self, "fixed", "-interfaces", strings.Join(interfaces, ","), "-reply", hex.EncodeToString(reply)}
	return nodeServer{label: "fixed", target: nodeCluster, argv: argv}
}

// nodeCommand returns the command of our server as a node's cache.
func (b *bench) nodeCommand(corefile, capture string, more ...string) []string {
	return append([]string{b.binary, "node", "-capture", capture, "-localip", nodeLocal + "," + nodeCluster,
		"-conf", corefile, "-corefile", corefile + "." + capture, "-basecorefile", corefile, "-kubednscm",
		b.dir}, more...)
}

// nodeServers returns the contenders. The node of a contender that does not set it up itself has
// the rules of node-cache, except that capture none of Seamark has no rules.
func (b *bench) nodeServers(corefile, answers string) []nodeServer {
	ours := func(capture string, more ...string) []string { return b.nodeCommand(corefile, capture, more...) }
	loop := func(more ...string) []string {
		return b.loop("", netip.MustParseAddrPort(nodeCluster+":53"), answers, more...).argv
	}

	all := []nodeServer{
		{label: "tcx", target: nodeCluster, argv: ours("tcx")},
		{label: "tcx, not repeated", target: nodeCluster, argv: ours("tcx", "-repeat-replies=false")},
		{label: "address", target: nodeCluster, argv: ours("address")},
		{label: "none", target: nodeLocal, local: true, argv: ours("none")},
		{label: "loop", target: nodeCluster, local: true, exempt: true, argv: loop()},
		{label: "echo", target: nodeCluster, local: true, exempt: true, argv: loop("-blocking")},
	}
	switch {
	case b.nodecachePath != "":
		cache := corefile + ".node-cache"
		return append(all, nodeServer{label: "node-cache", target: nodeCluster, argv: []string{b.nodecachePath,
			"-localip", nodeLocal + "," + nodeCluster, "-conf", cache, "-corefile", cache, "-basecorefile", corefile}})
	case b.corednsPath != "":
		return append(all, nodeServer{label: "coredns", target: nodeCluster, local: true, exempt: true,
			argv: []string{b.corednsPath, "-conf", corefile}})
	}
	b.miss("node: set -nodecache or COREDNS to a binary to compare with")
	return all
}

// node measures the cache of a node: CPU for an answer to a pod at three loads, and memory
// with a full cache.
func (b *bench) node(ctx context.Context) error {
	defer b.stopServers()
	if why := nodeImpossible(); why != nil {
		b.miss("node: %v", why)
		return nil
	}
	if end, err := countPrograms(); err != nil {
		b.miss("node: the run time of BPF programs is not counted: %v", err)
	} else {
		defer end()
	}

	corefile := b.file("Corefile-node")
	if err := b.expand(corefile, "node.Corefile", nil, nodeValues()); err != nil {
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

	b.work["node"], b.work["node one"], b.work["full cache"] = new(workload), new(workload), new(workload)
	b.work["node one"].lookups = b.work["cached"].lookups[:1] // startNode waits for its answer
	for k := range fullCache {
		if q := outsideLookup(k); k < nodeNames {
			b.work["node"].lookups = append(b.work["node"].lookups, q)
		}
		b.work["full cache"].lookups = append(b.work["full cache"].lookups, outsideLookup(k), deniedLookup(k))
	}

	fixed := b.nodeFixed(names)
	var ready []peer
	for _, n := range append(b.nodeServers(corefile, answers), fixed) {
		s, network, err := b.startNode(ctx, n, answers, b.work["cached"].lookups[0])
		if network != nil {
			defer network.close()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			b.miss("node, %s: %v", n.label, err)
			continue
		}
		one := peer{n.label, s, nil}
		if n.label == fixed.label {
			one.only = []string{"node one"}
		}
		ready = append(ready, one)
	}

	const sockets = 8 * nodePods
	err = b.compareAll(ctx, ready,
		comparison{name: "node", title: "the cache of a node, 100 outstanding queries of three pods", workload: "node",
			transport: overUDP, sockets: sockets},
		comparison{name: "node 20k", title: "the same, 20,000 queries a second", workload: "node",
			transport: overUDP, sockets: sockets, rate: 20000},
		comparison{name: "node 1k", title: "the same, 1,000 queries a second", workload: "node",
			transport: overUDP, sockets: sockets, rate: 1000, longer: 2, expires: true},
		comparison{name: "node one", title: "the same, for one name, 100 outstanding", workload: "node one",
			transport: overUDP, sockets: sockets})
	if err != nil {
		return err
	}
	return b.nodeMemory(ctx, ready)
}

// nodeImpossible returns the reason why this machine cannot have the nodes.
func nodeImpossible() error {
	for _, program := range []string{"ip", "nft", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("the program %s is not installed", program)
		}
	}
	probe, err := newNamespace()
	if err != nil {
		return fmt.Errorf("network namespaces may not be made: %w", err)
	}
	return probe.Close()
}

// nodeMemory fills the caches and reads the memory of their processes after a while.
func (b *bench) nodeMemory(ctx context.Context, peers []peer) error {
	peers = slices.DeleteFunc(peers, func(p peer) bool { return slices.Contains([]string{"loop", "echo", "fixed"}, p.label) })
	for _, p := range peers {
		l := b.load(p.server, comparison{workload: "full cache", transport: overUDP, sockets: 8 * nodePods, rate: 5000})
		l.time = time.Duration(len(l.lookups)+100) * time.Second / 5000
		if t, err := l.run(ctx); err != nil {
			return err
		} else if t.wrong > 0 {
			b.miss("node memory, %s: %d wrong answers: %s", p.label, t.wrong, t.example)
		}
	}

	wait := b.settle()
	if !b.quick {
		wait = nodeSettle
	}
	if err := pause(ctx, wait); err != nil {
		return err
	}

	for _, p := range peers {
		var resident, anonymous, share int64
		for _, pid := range processes(p.server.pid()) {
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

		b.megabytes("node memory/"+p.label, "node's cache full, resident, "+p.label, resident)
		b.megabytes("node anonymous/"+p.label, "of that not of the binary, "+p.label, anonymous)
		b.megabytes("node share/"+p.label, "proportional share of all its processes, "+p.label, share)
	}

	return nil
}

// startNode makes a node with an upstream and the server, and waits until the server
// answers q to a pod.
func (b *bench) startNode(ctx context.Context, n nodeServer, answers string, q *lookup) (*server, *network, error) {
	network, err := b.newNetwork(n.local, n.exempt)
	if err != nil {
		return nil, nil, err
	}
	if n.api != "" {
		if err := network.reach(n.api); err != nil {
			return nil, network, err
		}
	}

	upstream := b.loop("upstream", netip.MustParseAddrPort(nodeUpstream), answers, "-upstream")
	upstream.argv = inside(network.node, upstream.argv...)
	if _, err := b.spawn(upstream); err != nil {
		return nil, network, err
	}

	target := netip.AddrPortFrom(netip.MustParseAddr(n.target), 53)
	s, err := b.spawn(program{name: n.label, argv: inside(network.node, n.argv...),
		at: map[string]netip.AddrPort{"plain": target}})
	if err != nil {
		return nil, network, err
	}
	s.pods = network.pods

	waiting, stop := context.WithTimeout(ctx, nodePatience)
	defer stop()
	err = s.await(waiting, q)
	if waiting.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %v: %s", nodePatience, s.tail())
	}
	return s, network, err
}

// A network is the network namespaces of a node and its pods.
type network struct {
	node  *os.File
	pods  []*os.File
	relay *relay // nil if the node reaches nothing of this machine
}

// newNetwork makes a node with pods and the rules of kube-proxy, and with the addresses and
// the rules of node-cache.
func (b *bench) newNetwork(addresses, exempt bool) (_ *network, err error) {
	n := new(network)
	defer func() {
		if err != nil {
			n.close()
		}
	}()

	if n.node, err = newNamespace(); err != nil {
		return nil, err
	}

	setup := "link set lo up\n"
	if addresses {
		setup += "addr add " + nodeLocal + "/32 dev lo\naddr add " + nodeCluster + "/32 dev lo\n"
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
	values, rules := nodeValues(), b.file("node.nft")
	values["exempt"] = exempt
	if err := b.expand(rules, "node.nft", nil, values); err != nil {
		return nil, err
	}
	if err := runIn(n.node, "", "nft", "-f", rules); err != nil {
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
	if n.relay != nil {
		n.relay.close()
	}
	for _, f := range append(n.pods, n.node) {
		if f != nil {
			f.Close()
		}
	}
}

// reach listens in the node at a loopback address, and passes its TCP connections on to the same address of this
// machine, until the node is closed.
func (n *network) reach(address string) error {
	return within(n.node, func() (err error) {
		n.relay, err = newRelay(address, address)
		return err
	})
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
