package cmd_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// A namespace is a network namespace. A process of its own keeps it.
type namespace struct {
	t    *testing.T
	path string
}

// newNamespace makes a namespace, or skips the test if that is not permitted.
func newNamespace(t *testing.T) namespace {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs the program ip, of the package iproute2")
	}
	holder := exec.Command("cat")
	in, err := holder.StdinPipe() // it ends when the test does
	if err != nil {
		t.Fatal(err)
	}
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := holder.Start(); err != nil {
		t.Skipf("network namespaces may not be made: %v", err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = holder.Wait()
	})
	n := namespace{t, fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid)}
	n.ip("link set lo up")
	// Without duplicate address detection interfaces can resolve neighbours at once.
	n.sysctl("ipv6/conf/default/accept_dad", "0")
	return n
}

// do runs f on a thread in the namespace. Sockets and processes of f belong to it.
func (n namespace) do(f func()) {
	n.t.Helper()
	var failed error
	var running sync.WaitGroup
	running.Go(func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		var file *os.File
		if file, failed = os.Open(n.path); failed != nil {
			return
		}
		defer file.Close()
		if failed = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); failed == nil {
			f()
		}
	})
	running.Wait()
	if failed != nil {
		n.t.Fatalf("entering a network namespace: %v", failed)
	}
}

// ip runs commands of the program ip, one a line.
func (n namespace) ip(lines string) {
	n.t.Helper()
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		var out []byte
		var err error
		n.do(func() { out, err = exec.Command("ip", strings.Fields(line)...).CombinedOutput() })
		if err != nil {
			n.t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
}

// shown returns the output of a command of ip.
func (n namespace) shown(line string) string {
	var out []byte
	n.do(func() { out, _ = exec.Command("ip", strings.Fields(line)...).CombinedOutput() })
	return string(out)
}

func (n namespace) sysctl(name, value string) {
	n.t.Helper()
	var err error
	n.do(func() { err = os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644) })
	if err != nil {
		n.t.Fatal(err)
	}
}

// The addresses in the tests of a node.
const (
	nodeDNS    = "169.254.20.10"
	clusterDNS = "10.96.0.10"
	cluster6   = "fd00:96::10"
	upstreamIP = "10.96.0.99" // kube-dns-upstream
)

// A testNode is a node with a pod and a replica of the cluster's DNS server. Its rules are
// those of kube-proxy for the Services kube-dns and kube-dns-upstream.
type testNode struct {
	namespace
	pod  namespace
	args []string
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	n := &testNode{namespace: newNamespace(t), pod: newNamespace(t)}
	replica := newNamespace(t)
	pid := func(n namespace) string { return strings.Split(n.path, "/")[2] }
	n.ip(`link add pod type veth peer name eth0 netns ` + pid(n.pod) + `
		link add replica type veth peer name eth0 netns ` + pid(replica) + `
		addr add 10.0.1.1/24 dev pod
		addr add fd00:1::1/64 dev pod nodad
		addr add 10.0.2.1/24 dev replica
		addr add fd00:2::1/64 dev replica nodad
		link set pod up
		link set replica up
		route add default via 10.0.2.2`)
	n.pod.ip(`addr add 10.0.1.2/24 dev eth0
		addr add fd00:1::2/64 dev eth0 nodad
		link set eth0 up
		route add default via 10.0.1.1
		-6 route add default via fd00:1::1`)
	replica.ip(`addr add 10.0.2.2/24 dev eth0
		addr add fd00:2::2/64 dev eth0 nodad
		link set eth0 up
		route add default via 10.0.2.1
		-6 route add default via fd00:2::1`)
	n.sysctl("ipv4/ip_forward", "1")
	n.sysctl("ipv6/conf/all/forwarding", "1")
	n.kubeProxy()
	for _, ip := range []string{"10.0.2.2", "fd00:2::2"} {
		replica.answers(ip, "192.0.2.1")
	}
	n.args = n.files(`from.example:53 {
    bind __PILLAR__LOCAL__DNS__ __PILLAR__DNS__SERVER__
    template IN A {
        answer "{{.Name}} 5 IN A 192.0.2.99"
    }
    health __PILLAR__LOCAL__DNS__:8080
    prometheus 127.0.0.1:9253
}
.:53 {
    bind __PILLAR__LOCAL__DNS__
    cache 30
    forward . __PILLAR__CLUSTER__DNS__ {
        force_tcp
    }
}
`)
	return n
}

// files writes a template and returns arguments of the command node with it.
func (n *testNode) files(template string) []string {
	n.t.Helper()
	dir := n.t.TempDir()
	write(n.t, filepath.Join(dir, "Corefile.base"), template)
	return []string{"-capture=address", "-localip", nodeDNS + "," + clusterDNS + "," + cluster6, "-conf", filepath.Join(dir, "Corefile"), "-corefile", filepath.Join(dir, "Corefile"),
		"-basecorefile", filepath.Join(dir, "Corefile.base"), "-kubednscm", filepath.Join(dir, "kube-dns"), "-upstreamsvc", "kube-dns-upstream"}
}

// answers starts a server that answers every query with an address.
func (n namespace) answers(ip, address string) {
	n.t.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		rr, _ := dns.NewRR(q.Question[0].Name + " 5 IN A " + address)
		m.Answer = []dns.RR{rr}
		_ = w.WriteMsg(m)
	})
	var packets net.PacketConn
	var listener net.Listener
	var err error
	n.do(func() {
		if packets, err = net.ListenPacket("udp", net.JoinHostPort(ip, "53")); err == nil {
			listener, err = net.Listen("tcp", net.JoinHostPort(ip, "53"))
		}
	})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: listener, Handler: handler}} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.ActivateAndServe()
		}()
		n.t.Cleanup(func() {
			packets.Close()
			listener.Close()
			<-done
		})
	}
}

// kubeProxy sends queries to the ClusterIPs to the replica, as kube-proxy's rules do.
func (n *testNode) kubeProxy() {
	n.t.Helper()
	var err error
	n.do(func() {
		var c *nftables.Conn
		if c, err = nftables.New(); err != nil {
			return
		}
		table := c.AddTable(&nftables.Table{Name: "kube-proxy", Family: nftables.TableFamilyINet})
		for name, hook := range map[string]*nftables.ChainHook{"services": nftables.ChainHookPrerouting, "output": nftables.ChainHookOutput} {
			chain := c.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: nftables.ChainPriorityNATDest})
			for _, service := range []string{clusterDNS, upstreamIP, cluster6} {
				for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
					c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: dnat(netip.MustParseAddr(service), protocol)})
				}
			}
		}
		err = c.Flush()
	})
	if err != nil {
		n.t.Skipf("nftables is not available: %v", err)
	}
}

// dnat returns a rule that sends packets for port 53 of a Service to the replica.
func dnat(service netip.Addr, protocol byte) []expr.Any {
	family, nat, offset, replica := byte(unix.NFPROTO_IPV4), uint32(unix.NFPROTO_IPV4), uint32(16), "10.0.2.2"
	if service.Is6() {
		family, nat, offset, replica = unix.NFPROTO_IPV6, unix.NFPROTO_IPV6, 24, "fd00:2::2"
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Register: 1, Data: []byte{family}},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Register: 1, Data: []byte{protocol}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(service.BitLen() / 8)},
		&expr.Cmp{Register: 1, Data: service.AsSlice()},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Register: 1, Data: []byte{0, 53}},
		&expr.Immediate{Register: 1, Data: netip.MustParseAddr(replica).AsSlice()},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: nat, RegAddrMin: 1},
	}
}

// tables returns the names of the tables of the command node.
func (n *testNode) tables() (names []string) {
	n.t.Helper()
	n.do(func() {
		c, err := nftables.New()
		if err != nil {
			n.t.Error(err)
			return
		}
		tables, err := c.ListTables()
		if err != nil {
			n.t.Error(err)
		}
		for _, table := range tables {
			if strings.HasPrefix(table.Name, "seamark") {
				names = append(names, table.Name)
			}
		}
	})
	return names
}

// A logBuffer collects standard error.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A nodeProcess runs the command node.
type nodeProcess struct {
	*exec.Cmd
	log  *logBuffer
	done chan struct{}
}

// start starts the command without its name, as in node-cache's manifest, and waits until
// its rules are there.
func (n *testNode) start(args ...string) *nodeProcess {
	n.t.Helper()
	p := n.startUnready(args...)
	n.eventually("rules of the node's cache", p, func() bool {
		return strings.Contains(p.log.String(), "exempt from connection tracking table=")
	})
	return p
}

func (n *testNode) startUnready(args ...string) *nodeProcess {
	n.t.Helper()
	return n.startChanged(func(*exec.Cmd) {}, append(args, "-metrics-listen-address=127.0.0.1:9353")...)
}

// startChanged starts the command after a change of it.
func (n *testNode) startChanged(change func(*exec.Cmd), args ...string) *nodeProcess {
	n.t.Helper()
	c := program(n.t, n.t.TempDir(), append(append([]string{}, n.args...), args...)...)
	c.Env = append(c.Env, "KUBE_DNS_UPSTREAM_SERVICE_HOST="+upstreamIP)
	change(c)
	p := &nodeProcess{c, new(logBuffer), make(chan struct{})}
	c.Stderr = p.log
	var err error
	n.do(func() { err = c.Start() })
	if err != nil {
		n.t.Fatal(err)
	}
	go func() {
		_ = c.Wait()
		close(p.done)
	}()
	n.t.Cleanup(func() { n.end(p, syscall.SIGKILL) })
	return p
}

// end ends the process and waits.
func (n *testNode) end(p *nodeProcess, s syscall.Signal) {
	n.t.Helper()
	_ = p.Process.Signal(s)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		n.t.Fatalf("the process did not end within 20s after %v; its log:\n%s", s, p.log)
	}
}

func (n *testNode) eventually(what string, p *nodeProcess, condition func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("no %s within 20s; log of the process:\n%s", what, p.log)
		}
	}
}

// dial opens a socket of the pod to a DNS server.
func (n *testNode) dial(network, server string) *dns.Conn {
	n.t.Helper()
	var conn net.Conn
	var err error
	n.pod.do(func() { conn, err = net.DialTimeout(network, net.JoinHostPort(server, "53"), 5*time.Second) })
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	return &dns.Conn{Conn: conn}
}

// answer sends a query for a name that the node's cache and the replica answer
// differently, and returns the address in the answer.
func answer(c *dns.Conn, timeout time.Duration) string {
	return answerTo(c, "from.example.", timeout)
}

func answerTo(c *dns.Conn, name string, timeout time.Duration) string {
	client := dns.Client{Timeout: timeout}
	reply, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion(name, dns.TypeA), c)
	if err != nil {
		return err.Error()
	}
	if len(reply.Answer) != 1 {
		return reply.String()
	}
	return reply.Answer[0].(*dns.A).A.String()
}

const byNode, byReplica = "192.0.2.99", "192.0.2.1"

func (n *testNode) answered(c *dns.Conn, want string) {
	n.t.Helper()
	if got := answer(c, 5*time.Second); got != want {
		n.t.Errorf("from.example. A from %s over %s: got %s, want %s", c.RemoteAddr(), c.RemoteAddr().Network(), got, want)
	}
}

// tracked returns the tracked connections of the pod to port 53.
func (n *testNode) tracked() (lines []string) {
	n.t.Helper()
	n.do(func() {
		text, err := os.ReadFile("/proc/thread-self/net/nf_conntrack")
		if err != nil {
			n.t.Skipf("tracked connections cannot be read: %v", err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "dport=53 ") && (strings.Contains(line, "src=10.0.1.2 ") || strings.Contains(line, "src=fd00:0001:0000:0000:0000:0000:0000:0002 ")) {
				lines = append(lines, line)
			}
		}
	})
	return lines
}

// The node's cache answers queries of pods to the ClusterIPs and to its own address, over
// IPv4 and IPv6, without tracked connections. After SIGKILL the replica answers, on the
// same sockets, and a new process uses what is left. After SIGTERM nothing is left.
func TestNodeCapture(t *testing.T) {
	n := newTestNode(t)
	var sockets []*dns.Conn
	for _, server := range []string{clusterDNS, cluster6} {
		c := n.dial("udp", server)
		n.answered(c, byReplica)
		sockets = append(sockets, c)
	}
	before := n.tracked()
	if len(before) != 2 {
		t.Fatalf("tracked connections to the replica: got %q, want 2", before)
	}

	p := n.start()
	for _, c := range sockets { // although they are tracked
		n.answered(c, byNode)
	}
	for range 20 {
		for _, server := range []string{nodeDNS, clusterDNS, cluster6} {
			n.answered(n.dial("udp", server), byNode)
		}
		n.answered(n.dial("tcp", clusterDNS), byNode)
	}
	if after := n.tracked(); len(after) > len(before) {
		t.Errorf("tracked connections after 80 queries: got %d more, want none:\n%s", len(after)-len(before), strings.Join(after, ""))
	}
	// A query to the replicas, through the ClusterIP that is not captured.
	client := dns.Client{Timeout: 5 * time.Second}
	if reply, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion("other.example.", dns.TypeA), n.dial("udp", nodeDNS)); err != nil || len(reply.Answer) != 1 {
		t.Errorf("other.example. A: got %v, error %v, want the replica's answer", reply, err)
	}
	if tables := n.tables(); len(tables) != 1 {
		t.Errorf("tables: got %q, want one", tables)
	}

	n.end(p, syscall.SIGKILL)
	n.eventually("answer of the replica after SIGKILL", p, func() bool {
		for _, c := range sockets {
			if answer(c, time.Second) != byReplica {
				return false
			}
		}
		return true
	})
	if tables := n.tables(); len(tables) != 0 {
		t.Errorf("tables after SIGKILL: got %q, want none", tables)
	}

	p = n.start()
	for _, c := range sockets {
		n.answered(c, byNode)
	}
	n.end(p, syscall.SIGTERM)
	for _, c := range sockets {
		n.answered(c, byReplica)
	}
	n.without(p, nodeDNS, clusterDNS, cluster6)
}

// without checks that addresses and rules have been removed.
func (n *testNode) without(p *nodeProcess, addresses ...string) {
	n.t.Helper()
	shown := n.shown("-o addr show")
	for _, a := range addresses {
		if strings.Contains(shown, a+"/") {
			n.t.Errorf("addresses after the end: got\n%s\nwant no %s; log of the process:\n%s", shown, a, p.log)
		}
	}
	if tables := n.tables(); len(tables) != 0 {
		n.t.Errorf("tables after the end: got %q, want none", tables)
	}
	if code := p.ProcessState.ExitCode(); code != 0 {
		n.t.Errorf("exit status: got %d, want 0; log:\n%s", code, p.log)
	}
}

// interfaceOf returns the interface that has an address, "" if none has.
func (n *testNode) interfaceOf(address string) string {
	for line := range strings.Lines(n.shown("-o addr show")) {
		if fields := strings.Fields(line); len(fields) > 3 && strings.HasPrefix(fields[3], address+"/") {
			return fields[1]
		}
	}
	return ""
}

// An address that something removes comes back.
func TestNodeAddressRemoved(t *testing.T) {
	n := newTestNode(t)
	p := n.start("-syncinterval", "3600")
	for _, address := range []string{nodeDNS + "/32", cluster6 + "/128"} {
		ip, _, _ := strings.Cut(address, "/")
		name := n.interfaceOf(ip)
		n.ip("addr del " + address + " dev " + name)
		n.eventually("address "+ip, p, func() bool { return n.interfaceOf(ip) == name })
		n.answered(n.dial("udp", ip), byNode)
	}
	n.eventually("two warnings about removed addresses", p, func() bool {
		return strings.Count(p.log.String(), "Address was removed, added it again") == 2
	})
}

// With -skipteardown the addresses stay, but no rules: the replica answers. The addresses
// of a later process without the flag do not stay.
func TestNodeSkipTeardown(t *testing.T) {
	n := newTestNode(t)
	p := n.start("-skipteardown")
	n.end(p, syscall.SIGTERM)
	for _, a := range []string{nodeDNS, clusterDNS, cluster6} {
		if n.interfaceOf(a) == "" {
			t.Errorf("address %s after the end with -skipteardown: got none, want it", a)
		}
	}
	n.answered(n.dial("udp", clusterDNS), byReplica)
	n.without(p)
	p = n.start()
	n.end(p, syscall.SIGTERM)
	n.without(p, nodeDNS, clusterDNS, cluster6)
}

// Addresses that were on the node before are used and left alone.
func TestNodeAddressPresent(t *testing.T) {
	n := newTestNode(t)
	n.ip("addr add " + clusterDNS + "/32 dev replica")
	p := n.start()
	n.answered(n.dial("udp", clusterDNS), byNode)
	n.end(p, syscall.SIGTERM)
	n.without(p, nodeDNS, cluster6)
	if got := n.interfaceOf(clusterDNS); got != "replica" {
		t.Errorf("interface of %s after the end: got %q, want replica", clusterDNS, got)
	}
}

// With -capture=none the node is not changed: the server needs the addresses.
func TestNodeCaptureNone(t *testing.T) {
	n := newTestNode(t)
	p := n.startUnready("-capture=none")
	<-p.done
	if log := p.log.String(); !strings.Contains(log, "this machine does not have the address") {
		t.Errorf("got log\n%s\nwant an error about a missing address", log)
	}
	n.ip("addr add " + nodeDNS + "/32 dev lo\naddr add " + clusterDNS + "/32 dev lo\n-6 addr add " + cluster6 + "/128 dev lo")
	p = n.startUnready("-capture=none")
	n.eventually("answer at "+nodeDNS, p, func() bool { return answer(n.dial("udp", nodeDNS), time.Second) == byNode })
	if tables := n.tables(); len(tables) != 0 {
		t.Errorf("tables: got %q, want none", tables)
	}
	n.answered(n.dial("udp", clusterDNS), byReplica)
	n.end(p, syscall.SIGTERM)
	if n.interfaceOf(nodeDNS) != "lo" {
		t.Errorf("address %s after the end: got none, want it on lo", nodeDNS)
	}
}

// While another process serves the node, the end of the first one leaves the addresses.
func TestNodeTwoInstances(t *testing.T) {
	n := newTestNode(t)
	first := n.start()
	n.args = n.files(".:5353 {\n    bind " + nodeDNS + "\n    whoami\n}\n")
	second := n.start("-dns.port=5353")
	if log := second.log.String(); !strings.Contains(log, "Another instance serves this node") {
		t.Errorf("log of the second process: got\n%s\nwant a message about the first", log)
	}
	if tables := n.tables(); len(tables) != 2 {
		t.Errorf("tables: got %q, want 2", tables)
	}
	n.end(first, syscall.SIGTERM)
	if n.interfaceOf(nodeDNS) == "" {
		t.Errorf("addresses after the end of the first process: got\n%s\nwant %s", n.shown("-o addr show"), nodeDNS)
	}
	n.end(second, syscall.SIGTERM)
	n.without(second, nodeDNS, clusterDNS, cluster6)
}

// cleanup runs the command cleanup on the node.
func (n *testNode) cleanup(args ...string) (out string, code int) {
	c := program(n.t, n.t.TempDir(), append([]string{"node", "cleanup"}, args...)...)
	n.do(func() {
		text, _ := c.CombinedOutput()
		out = string(text)
	})
	return out, c.ProcessState.ExitCode()
}

// oldRule adds a rule with a comment to the table raw, as iptables-nft does.
func (n *testNode) oldRule(comment string) {
	n.t.Helper()
	var err error
	n.do(func() {
		var c *nftables.Conn
		if c, err = nftables.New(); err != nil {
			return
		}
		table := c.AddTable(&nftables.Table{Name: "raw", Family: nftables.TableFamilyIPv4})
		chain := c.AddChain(&nftables.Chain{Name: "PREROUTING", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Counter{}}, UserData: append([]byte{0, byte(len(comment) + 1)}, comment+"\x00"...)})
		err = c.Flush()
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// oldRules returns the number of rules in the table raw.
func (n *testNode) oldRules() (count int) {
	n.t.Helper()
	n.do(func() {
		c, err := nftables.New()
		if err != nil {
			n.t.Error(err)
			return
		}
		table := &nftables.Table{Name: "raw", Family: nftables.TableFamilyIPv4}
		rules, err := c.GetRules(table, &nftables.Chain{Name: "PREROUTING", Table: table})
		if err != nil {
			n.t.Error(err)
		}
		count = len(rules)
	})
	return count
}

// cleanup removes the addresses after SIGKILL and the rules of node-cache, and nothing
// else; not while a process serves.
func TestNodeCleanup(t *testing.T) {
	n := newTestNode(t)
	n.oldRule("NodeLocal DNS Cache: skip conntrack")
	n.oldRule("another rule")
	n.ip("addr add 10.9.9.9/32 dev lo")
	p := n.start()
	if log := p.log.String(); !strings.Contains(log, "iptables rules of node-cache are on the node") {
		t.Errorf("got log\n%s\nwant a warning about rules of node-cache", log)
	}
	if out, code := n.cleanup(); code != 1 || !strings.Contains(out, "a process serves ") {
		t.Errorf("cleanup while a process serves: got %q and exit status %d, want an error", out, code)
	}
	if rules := n.oldRules(); rules != 2 {
		t.Errorf("rules after a refused cleanup: got %d, want 2", rules)
	}
	n.end(p, syscall.SIGKILL)
	if n.interfaceOf(nodeDNS) == "" {
		t.Fatalf("address %s after SIGKILL: got none, want it", nodeDNS)
	}
	out, code := n.cleanup()
	for _, want := range []string{"Removed address " + nodeDNS + "\n", "Removed address " + clusterDNS + "\n", "Removed address " + cluster6 + "\n", "of node-cache in table raw, chain PREROUTING\n"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("cleanup: got exit status %d and\n%s\nwant %q", code, out, want)
		}
	}
	for _, a := range []string{nodeDNS, clusterDNS, cluster6} {
		if name := n.interfaceOf(a); name != "" {
			t.Errorf("address %s after cleanup: got it on %s, want none", a, name)
		}
	}
	if n.interfaceOf("10.9.9.9") != "lo" || n.oldRules() != 1 {
		t.Errorf("after cleanup: got address 10.9.9.9 on %q and %d rules, want lo and 1", n.interfaceOf("10.9.9.9"), n.oldRules())
	}
	if out, code := n.cleanup(); code != 0 || !strings.HasPrefix(out, "Nothing to remove") {
		t.Errorf("second cleanup: got exit status %d and %q, want nothing to remove", code, out)
	}
}

// A second process takes over the sockets of the first one (maxSurge of the DaemonSet): no
// query is lost, the end of the first process leaves the addresses and rules, and after
// the second one is killed the replica answers although the first is still there.
func TestNodeUpgrade(t *testing.T) {
	n := newTestNode(t)
	n.args = n.files(`from.example:53 {
    bind __PILLAR__LOCAL__DNS__
    template IN A {
        answer "{{.Name}} 5 IN A 192.0.2.99"
    }
    ready __PILLAR__LOCAL__DNS__:8181
    health
    handover ` + filepath.Join(t.TempDir(), "handover.sock") + ` {
        remain
    }
}
`)
	first := n.start()
	var load sync.WaitGroup
	stop := make(chan struct{})
	for _, server := range []string{nodeDNS, clusterDNS, cluster6} {
		c := n.dial("udp", server)
		load.Go(func() {
			for asked := 0; ; asked++ {
				select {
				case <-stop:
					t.Logf("%d queries to %s", asked, server)
					return
				default:
				}
				if got := answer(c, 5*time.Second); got != byNode {
					t.Errorf("query %d to %s during the upgrade: got %s, want %s", asked, server, got, byNode)
					return
				}
			}
		})
	}
	second := n.start()
	n.eventually("end of the hand-over", first, func() bool { return strings.Contains(first.log.String(), "waiting for a signal") })
	n.eventually("one table", first, func() bool { return len(n.tables()) == 1 })
	n.end(first, syscall.SIGTERM)
	if log := first.log.String(); !strings.Contains(log, "left it the local addresses") || first.ProcessState.ExitCode() != 0 {
		t.Errorf("first process: got exit status %d and log\n%s\nwant 0 and that it left the addresses", first.ProcessState.ExitCode(), log)
	}
	n.answered(n.dial("udp", clusterDNS), byNode)
	close(stop)
	load.Wait()

	third := n.start()
	n.eventually("end of the second hand-over", second, func() bool { return strings.Contains(second.log.String(), "waiting for a signal") })
	n.end(third, syscall.SIGKILL)
	n.answered(n.dial("udp", clusterDNS), byReplica)
	n.end(second, syscall.SIGTERM)
	n.without(second, nodeDNS, clusterDNS, cluster6)
}

func TestNodeErrors(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "Corefile.base")
	write(t, base, ".:53 {\n    forward . __PILLAR__CLUSTER__DNS__\n}\n")
	for _, c := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"node"}, "-localip: want the addresses to serve", 2},
		{[]string{"-localip", "169.254.20.10", "-basecorefile", dir + "/none", "-corefile", dir + "/none"}, "reading the template " + dir + "/none: file does not exist", 1},
		{[]string{"-localip=169.254.20.10", "-basecorefile", base}, base + ":2: __PILLAR__CLUSTER__DNS__: the environment variable KUBE_DNS_SERVICE_HOST has no address", 1},
		{[]string{"node-cache", "-localip=x"}, "-localip: want IP addresses", 2},
	} {
		if _, errs, code := run(t, dir, "", c.args...); code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%q: got exit status %d and %q, want %d and %q", c.args, code, errs, c.code, c.want)
		}
	}
}
