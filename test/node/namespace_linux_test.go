package node

import (
	"errors"
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
	"github.com/seamark/seamark/test/debian"
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
	debian.Program(t, "ip")
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
	pod     namespace
	replica namespace
	more    []namespace // other pods
	args    []string
}

// connect adds a namespace behind an interface of the node, and waits until packets pass between
// both. Its addresses are 10.0.NUMBER.2 and fd00:NUMBER::2.
func (n *testNode) connect(name string, number int) namespace {
	n.t.Helper()
	other := newNamespace(n.t)
	n.ip(fmt.Sprintf(`link add %[1]s type veth peer name eth0 netns %[3]s
		addr add 10.0.%[2]d.1/24 dev %[1]s
		addr add fd00:%[2]d::1/64 dev %[1]s nodad
		link set %[1]s up`, name, number, strings.Split(other.path, "/")[2]))
	other.ip(fmt.Sprintf(`addr add 10.0.%[1]d.2/24 dev eth0
		addr add fd00:%[1]d::2/64 dev eth0 nodad
		link set eth0 up
		route add default via 10.0.%[1]d.1
		-6 route add default via fd00:%[1]d::1`, number))
	other.reach(fmt.Sprintf("10.0.%d.1", number))
	other.reach(fmt.Sprintf("fd00:%d::1", number))
	return other
}

// reach waits until packets pass to an address and back. The kernel adds the local route of an
// IPv6 address some time after the address, which may be seconds on a busy machine.
func (n namespace) reach(ip string) {
	n.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var err error
		n.do(func() { _, err = net.DialTimeout("tcp", net.JoinHostPort(ip, "9"), 3*time.Second) })
		if errors.Is(err, unix.ECONNREFUSED) { // by the machine that has the address
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("connection to port 9 of %s: got error %v for a minute, want that it is refused", ip, err)
		}
	}
}

// addPods adds two pods, from which load sends queries, too.
func (n *testNode) addPods() {
	n.t.Helper()
	for number := 3; number < 5; number++ {
		n.more = append(n.more, n.connect(fmt.Sprintf("pod%d", number), number))
	}
}

// long skips a test that takes more than a second.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	t.Parallel()
	n := &testNode{namespace: newNamespace(t)}
	n.pod = n.connect("pod", 1)
	replica := n.connect("replica", 2)
	n.replica = replica
	n.ip("route add default via 10.0.2.2")
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
	n.answersWith(ip, func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		rr, _ := dns.NewRR(q.Question[0].Name + " 5 IN A " + address)
		m.Answer = []dns.RR{rr}
		_ = w.WriteMsg(m)
	})
}

// answersWith starts a server with a handler.
func (n namespace) answersWith(ip string, handler dns.HandlerFunc) {
	n.t.Helper()
	var packets net.PacketConn
	var listener net.Listener
	var err error
	n.do(func() {
		if packets, err = net.ListenPacket("udp", net.JoinHostPort(ip, "53")); err == nil {
			enlarge(packets.(*net.UDPConn))
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

// enlarge makes room in a socket for the packets that arrive while this process waits for a
// processor: after that nodeLoad sends many queries at once.
func enlarge(c *net.UDPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20) })
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
