package node

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/miekg/dns"
	"github.com/seamark/seamark/node/tcx"
	"golang.org/x/sys/unix"
)

// startTCX starts the command with the flags' default of -capture, and waits until a
// query is captured.
func (n *testNode) startTCX(args ...string) *nodeProcess {
	n.t.Helper()
	var support tcx.Support
	var err error
	n.do(func() { support, err = tcx.Probe() })
	if support == tcx.Unsupported {
		n.t.Skipf("BPF programs cannot capture queries: %v", err)
	}
	return n.startCaptured(append([]string{"-capture=auto"}, args...)...)
}

// startCaptured starts the command and waits until a query is captured, and none is tracked.
func (n *testNode) startCaptured(args ...string) *nodeProcess {
	n.t.Helper()
	p := n.startUnready(args...)
	c := n.dial("udp", clusterDNS)
	n.eventually("captured query", p, func() bool { return answer(c, time.Second) == byNode })
	n.eventually("rules", p, func() bool { return strings.Contains(p.log.String(), "exempt from connection tracking table=") })
	return p
}

// indexOf returns the index of an interface of the node.
func (n *testNode) indexOf(name string) (index int) {
	n.t.Helper()
	n.do(func() {
		i, err := net.InterfaceByName(name)
		if err != nil {
			n.t.Error(err)
			return
		}
		index = i.Index
	})
	return index
}

// programs returns the number of BPF programs at an interface of the node.
func (n *testNode) programs(name string) (count int) {
	n.t.Helper()
	index := n.indexOf(name)
	n.do(func() {
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			result, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: at})
			if err != nil {
				n.t.Error(err)
				return
			}
			count += len(result.Programs)
		}
	})
	return count
}

// The node's cache answers queries of pods to the ClusterIPs, which are not on the node,
// over both families and protocols, without tracked connections. After SIGKILL the replica
// answers on the same sockets and no program is left. After SIGTERM no address is, either.
func TestNodeTCX(t *testing.T) {
	long(t)
	n := newTestNode(t)
	var sockets []*dns.Conn
	for _, server := range []string{clusterDNS, cluster6} {
		c := n.dial("udp", server)
		n.answered(c, byReplica)
		sockets = append(sockets, c)
	}
	toReplica := n.dial("tcp", clusterDNS)
	n.answered(toReplica, byReplica)
	before := n.tracked()

	p := n.startTCX()
	if log := p.log.String(); !strings.Contains(log, "capture=tcx") {
		t.Errorf("log: got\n%s\nwant capture=tcx", log)
	}
	for _, c := range sockets {
		n.answered(c, byNode)
	}
	n.answered(toReplica, byReplica) // a connection stays with its server
	started := n.tracked()
	for range 20 {
		for _, server := range []string{nodeDNS, clusterDNS, cluster6} {
			n.answered(n.dial("udp", server), byNode)
			n.answered(n.dial("tcp", server), byNode)
		}
	}
	if after := n.tracked(); len(after) > len(started) {
		t.Errorf("tracked connections after 120 queries: got %d more, want none:\n%s", len(after)-len(started), strings.Join(after, ""))
	}
	for _, a := range []string{clusterDNS, cluster6} {
		if name := n.interfaceOf(a); name != "" {
			t.Errorf("address %s: got it on %s, want it on no interface", a, name)
		}
	}
	if got := n.programs("pod"); got != 2 {
		t.Errorf("programs at the pod's interface: got %d, want 2", got)
	}

	n.eventually("metrics of the capture", p, func() bool {
		text := n.metrics(p)
		return strings.Contains(text, "\nseamark_node_capture_interfaces 2\n") && strings.Contains(text, "\nseamark_node_capture_paused_interfaces 0\n") &&
			!strings.Contains(text, "\nseamark_node_capture_query_packets_total 0\n") && strings.Contains(text, "\nseamark_node_capture_reply_packets_total ")
	})

	if err := syscall.Kill(n.worker(p, 0), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, c := range sockets {
		n.answered(c, byNode)
	}

	n.end(p, syscall.SIGKILL)
	for _, c := range sockets {
		n.answered(c, byReplica)
	}
	if got := n.programs("pod"); got != 0 {
		t.Errorf("programs at the pod's interface after SIGKILL: got %d, want none", got)
	}
	t.Logf("%d tracked connections before, %d at the start", len(before), len(started))

	p = n.startTCX()
	n.end(p, syscall.SIGTERM)
	for _, c := range sockets {
		n.answered(c, byReplica)
	}
	n.without(p, nodeDNS, tcx.AliasFor(netip.MustParseAddr(clusterDNS), 0).String(), tcx.AliasFor(netip.MustParseAddr(cluster6), 0).String())
}

// While the supervisor or its worker is stopped the replica answers. After that the node's
// cache does again.
func TestNodeTCXStopped(t *testing.T) {
	long(t)
	n := newTestNode(t)
	p := n.startTCX()
	for name, pid := range map[string]int{"supervisor": p.Process.Pid, "worker": n.worker(p, 0)} {
		c := n.dial("udp", cluster6)
		n.answered(c, byNode)
		stopped := time.Now()
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		n.eventually("answer of the replica", p, func() bool { return answer(n.dial("udp", cluster6), 100*time.Millisecond) == byReplica })
		t.Logf("the replica answers %v after SIGSTOP of the %s", time.Since(stopped).Round(time.Millisecond), name)
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		n.eventually("answer of the node", p, func() bool { return answer(n.dial("udp", cluster6), time.Second) == byNode })
	}
}

// A pod that is added later is captured, also behind a bridge, and pods that are removed
// are forgotten.
func TestNodeTCXLaterPods(t *testing.T) {
	long(t)
	n := newTestNode(t)
	p := n.startTCX()
	later := newNamespace(t)
	pid := strings.Split(later.path, "/")[2]
	n.ip(`link add bridge0 type bridge
		addr add 10.0.3.1/24 dev bridge0
		link set bridge0 up
		link add later type veth peer name eth0 netns ` + pid + `
		link set later master bridge0
		link set later up`)
	later.ip(`addr add 10.0.3.2/24 dev eth0
		link set eth0 up
		route add default via 10.0.3.1`)
	other := &testNode{namespace: n.namespace, pod: later}
	n.eventually("captured query of the later pod", p, func() bool { return answer(other.dial("udp", clusterDNS), time.Second) == byNode })
	n.answered(other.dial("tcp", clusterDNS), byNode)
	n.ip("link del later")
	n.answered(n.dial("udp", clusterDNS), byNode)
}

// drop adds a table whose rule drops packets of pods to an address.
func (n *testNode) drop(address string) {
	n.dropAt(nftables.ChainHookInput, unix.NFT_META_IIFTYPE, true, address)
}

// dropReplies is the same for packets to pods.
func (n *testNode) dropReplies(address string) {
	n.dropAt(nftables.ChainHookOutput, unix.NFT_META_OIFTYPE, false, address)
}

// dropAt drops packets with an address as their destination or source, unless they pass lo.
func (n *testNode) dropAt(hook *nftables.ChainHook, interfaceType expr.MetaKey, destination bool, address string) {
	n.t.Helper()
	ip := netip.MustParseAddr(address)
	family, offset, size := nftables.TableFamilyIPv4, uint32(12), uint32(4)
	if ip.Is6() {
		family, offset, size = nftables.TableFamilyIPv6, 8, 16
	}
	if destination {
		offset += size
	}
	var err error
	n.do(func() {
		var c *nftables.Conn
		if c, err = nftables.New(); err != nil {
			return
		}
		table := c.AddTable(&nftables.Table{Name: "policy", Family: family})
		chain := c.AddChain(&nftables.Chain{Name: "filter", Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: interfaceType, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_LOOPBACK)},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
			&expr.Cmp{Register: 1, Data: ip.AsSlice()},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}})
		err = c.Flush()
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// flush removes all tables that this process may remove, as nft flush ruleset does.
func (n *testNode) flush(names ...string) {
	n.t.Helper()
	var err error
	n.do(func() {
		var c *nftables.Conn
		if c, err = nftables.New(); err != nil {
			return
		}
		var tables []*nftables.Table
		if tables, err = c.ListTables(); err != nil {
			return
		}
		for _, table := range tables {
			if slices.Contains(names, table.Name) {
				c.DelTable(table)
			}
		}
		err = c.Flush()
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// When a rule of the node drops the queries, the replica answers them, and the node's
// cache does again after the rule is gone.
func TestNodeTCXDropped(t *testing.T) {
	long(t)
	n := newTestNode(t)
	p := n.startTCX()
	n.drop(tcx.AliasFor(netip.MustParseAddr(clusterDNS), 0).String())
	dropped := time.Now()
	c := n.dial("udp", clusterDNS)
	n.eventually("answer of the replica", p, func() bool { return answer(c, 200*time.Millisecond) == byReplica })
	t.Logf("the replica answers %v after the rule", time.Since(dropped).Round(time.Millisecond))
	n.eventually("warning", p, func() bool { return strings.Contains(p.log.String(), "No replies pass to an interface") })
	n.answered(c, byReplica)
	n.flush("policy")
	n.eventually("answer of the node", p, func() bool { return answer(c, time.Second) == byNode })
}

// Without the table of the process, as after nft flush ruleset, queries are still answered.
func TestNodeTCXWithoutTables(t *testing.T) {
	long(t)
	n := newTestNode(t)
	p := n.startTCX()
	n.flush("kube-proxy")
	for _, server := range []string{clusterDNS, cluster6} {
		n.answered(n.dial("udp", server), byNode)
		n.answered(n.dial("tcp", server), byNode)
	}
	n.end(p, syscall.SIGTERM)
}

// On an interface with a BPF program of another process nothing is captured, unless a
// flag says so.
func TestNodeTCXForeign(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	n := newTestNode(t)
	index := n.indexOf("pod")
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "policy", Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.LoadImm(asm.R0, -1, asm.DWord), asm.Return()}})
	if err != nil {
		t.Skipf("BPF programs may not be loaded: %v", err)
	}
	defer program.Close()
	var foreign link.Link
	n.do(func() {
		foreign, err = link.AttachTCX(link.TCXOptions{Interface: index, Program: program, Attach: ebpf.AttachTCXIngress})
	})
	if err != nil {
		t.Skipf("BPF programs may not be attached: %v", err)
	}
	defer foreign.Close()
	p := n.start("-capture=tcx")
	n.eventually("warning about a foreign program", p, func() bool {
		return strings.Contains(p.log.String(), "Queries of an interface are not captured, they go to the cluster's DNS servers interface=pod ")
	})
	n.answered(n.dial("udp", clusterDNS), byReplica)
	n.end(p, syscall.SIGTERM)
	n.startTCX("-capture-foreign")
	if got := n.programs("pod"); got != 3 {
		t.Errorf("programs at the pod's interface: got %d, want 3", got)
	}
}

// Without a ClusterIP, or where pages may be at one, -capture=auto is the same as address.
func TestNodeCaptureAuto(t *testing.T) {
	n := newTestNode(t)
	for localIPs, reason := range map[string]string{
		nodeDNS:                    "-localip has no ClusterIP",
		clusterDNS + "," + nodeDNS: "the first address of -localip is not link-local",
	} {
		p := n.start("-capture=auto", "-localip", localIPs)
		if log := p.log.String(); !strings.Contains(log, "capture=address") || !strings.Contains(log, reason) {
			t.Errorf("-localip %s: got log\n%s\nwant capture=address and %q", localIPs, log, reason)
		}
		first, _, _ := strings.Cut(localIPs, ",")
		n.answered(n.dial("udp", first), byNode)
		n.end(p, syscall.SIGTERM)
	}
}
