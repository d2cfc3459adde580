package node

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/miekg/dns"
	"github.com/seamark/seamark/node/tcx"
	"github.com/seamark/seamark/test/debian"
)

// nodePairs is the number of pairs of queries of TestNodePairs, or that of
// SEAMARK_NODE_PAIRS.
func nodePairs() int {
	if pairs, err := strconv.Atoi(os.Getenv("SEAMARK_NODE_PAIRS")); err == nil {
		return pairs
	}
	return 2000
}

// eachCapture runs a test for each way to capture queries.
func eachCapture(t *testing.T, test func(n *testNode, capture string)) {
	long(t)
	t.Run("address", func(t *testing.T) { test(newTestNode(t), "-capture=address") })
	eachProgramCapture(t, test)
}

// A pod that sends queries for A and AAAA at once from one socket, as resolver libraries do,
// always gets both replies, and no query is tracked: the race of tracked connections that
// loses one of two, for five seconds, cannot happen.
func TestNodePairs(t *testing.T) {
	eachCapture(t, func(n *testNode, capture string) {
		n.args = n.files("from.example:53 {\n    bind __PILLAR__LOCAL__DNS__\n    template IN A {\n        answer \"{{.Name}} 5 IN A 192.0.2.99\"\n    }\n" +
			"    template IN AAAA {\n        answer \"{{.Name}} 5 IN AAAA 2001:db8::1\"\n    }\n}\n")
		p := n.startUnready(capture)
		n.eventually("captured query", p, func() bool { // from other addresses than the pairs
			return strings.Contains(p.log.String(), "exempt from connection tracking") && answer(n.dial("udp", cluster6), time.Second) == byNode
		})
		before := len(n.tracked())
		c := n.dial("udp", clusterDNS).Conn
		var queries [2][]byte
		for i, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			var err error
			if queries[i], err = new(dns.Msg).SetQuestion("from.example.", qtype).Pack(); err != nil {
				n.t.Fatal(err)
			}
		}
		start, timeouts, longest := time.Now(), 0, time.Duration(0)
		buf := make([]byte, 512)
		pairs := nodePairs()
		for pair := range pairs {
			sent := time.Now()
			for i, q := range queries {
				q[0], q[1] = byte(pair), byte(pair>>8)<<1|byte(i) // the ID
				if _, err := c.Write(q); err != nil {
					n.t.Fatal(err)
				}
			}
			_ = c.SetReadDeadline(sent.Add(5 * time.Second))
			for got := 0; got < 2; {
				size, err := c.Read(buf)
				if err != nil {
					timeouts++
					break
				}
				if size > 12 && buf[0] == byte(pair) && buf[1]>>1 == byte(pair>>8)&0x7f {
					got++
				}
			}
			longest = max(longest, time.Since(sent))
		}
		tracked := len(n.tracked()) - before
		n.t.Logf("%d pairs of A and AAAA from one socket in %v: %d timeouts of 5 s, %d more tracked connections, longest pair %v", pairs, time.Since(start).Round(time.Millisecond), timeouts, tracked, longest.Round(time.Microsecond))
		if timeouts != 0 || tracked > 0 {
			n.t.Errorf("%d pairs: got %d timeouts and %d more tracked connections, want none; log:\n%s", pairs, timeouts, tracked, p.log)
		}
		n.end(p, syscall.SIGTERM)
	})
}

// With an MTU of 1280 large replies are truncated at 1232 bytes and complete over TCP. With
// bufsize 4096 they are fragments, whose source is that of the query, too.
func TestNodeMTU(t *testing.T) {
	eachCapture(t, func(n *testNode, capture string) {
		const records = 150 // 2.4 kB
		block := func(zone, more string) string {
			var b strings.Builder
			fmt.Fprintf(&b, "%s:53 {\n    bind __PILLAR__LOCAL__DNS__\n%s    template IN A {\n", zone, more)
			for i := range records {
				fmt.Fprintf(&b, "        answer \"{{.Name}} 5 IN A 192.0.2.%d\"\n", i)
			}
			return b.String() + "    }\n}\n"
		}
		n.args = n.files(block("large.example", "") + block("fragments.example", "    bufsize 4096\n") + "from.example:53 {\n    bind __PILLAR__LOCAL__DNS__\n    template IN A {\n        answer \"{{.Name}} 5 IN A 192.0.2.99\"\n    }\n}\n")
		n.ip("link set pod mtu 1280")
		n.pod.ip("link set eth0 mtu 1280")
		p := n.startCaptured(capture)
		client := dns.Client{Timeout: patience, UDPSize: 4096}
		ask := func(network, server, name string) (answers int, truncated bool) {
			n.t.Helper()
			reply, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion(name, dns.TypeA).SetEdns0(4096, false), &dns.Conn{Conn: n.dial(network, server).Conn, UDPSize: 4096})
			if err != nil {
				n.t.Errorf("%s from %s over %s: got error %v; log:\n%s", name, server, network, err, p.log)
				return 0, false
			}
			return len(reply.Answer), reply.Truncated
		}
		for _, server := range []string{clusterDNS, cluster6} {
			if got, truncated := ask("udp", server, "large.example."); got >= records || !truncated {
				n.t.Errorf("large.example. from %s over UDP: got %d records, truncated %v, want fewer than %d, truncated", server, got, truncated, records)
			}
			if got, _ := ask("tcp", server, "large.example."); got != records {
				n.t.Errorf("large.example. from %s over TCP: got %d records, want %d", server, got, records)
			}
			if got, truncated := ask("udp", server, "fragments.example."); got != records || truncated {
				n.t.Errorf("fragments.example. from %s over UDP: got %d records, truncated %v, want %d", server, got, truncated, records)
			}
		}
		n.end(p, syscall.SIGTERM)
	})
}

// Nothing is captured before the kernel delivers packets to all addresses. It adds the routes of
// IPv6 addresses in a work queue, and has needed more than a second on a busy machine. Here a
// rule is the reason.
func TestNodeLateRoute(t *testing.T) {
	eachCapture(t, func(n *testNode, capture string) {
		late := cluster6
		if capture != "-capture=address" {
			late = tcx.AliasFor(netip.MustParseAddr(cluster6), 0).String()
		}
		if capture == "-capture=clsact" { // adding the qdisc makes the kernel drop packets to the interface for milliseconds
			for _, name := range []string{"pod", "replica"} {
				n.do(func() {
					if out, err := exec.Command("tc", "qdisc", "add", "dev", name, "clsact").CombinedOutput(); err != nil {
						n.t.Errorf("adding the qdisc clsact to %s: %v: %s", name, err, out)
					}
				})
			}
		}
		n.ip("-6 rule add pref 10 lookup local\n-6 rule del pref 0\n-6 rule add pref 1 to " + late + " blackhole")
		l := n.load(clusterDNS, cluster6)
		p := n.startUnready(capture)
		n.eventually("address", p, func() bool { return n.interfaceOf(late) != "" })
		before := l.replica.Load()
		n.eventually("answers of the replica", p, func() bool { return l.replica.Load()+l.node.Load() > before+int64(2*nodeRate()) })
		n.ip("-6 rule del pref 1")
		n.eventually("answers of the node", p, func() bool { return l.node.Load() > int64(nodeRate()) })
		lost := l.end()
		n.t.Logf("%v, %d lost", l, lost)
		if lost != 0 || l.refused.Load() != 0 {
			n.t.Errorf("start with a late route: got %v, %d lost, want no query lost; log:\n%s", l, lost, p.log)
		}
		n.end(p, syscall.SIGTERM)
	})
}

// After nft flush ruleset the rules of the process are still there, because its table has an
// owner. Queries are answered.
func TestNodeFlushRuleset(t *testing.T) {
	eachCapture(t, func(n *testNode, capture string) {
		p := n.startCaptured(capture)
		n.eventually("rules", p, func() bool { return len(n.tables()) == 1 })
		var err error
		n.do(func() {
			var c *nftables.Conn
			if c, err = nftables.New(); err == nil {
				c.FlushRuleset()
				err = c.Flush()
			}
		})
		if err != nil {
			n.t.Fatal(err)
		}
		if got := n.tables(); len(got) != 1 {
			n.t.Errorf("tables after the flush: got %q, want one", got)
		}
		for _, server := range []string{nodeDNS, clusterDNS, cluster6} {
			n.answered(n.dial("udp", server), byNode)
			n.answered(n.dial("tcp", server), byNode)
		}
		n.end(p, syscall.SIGTERM)
		n.without(p, nodeDNS)
	})
}

// A process with another version of the protocol is refused, and the one that serves
// continues, also after its worker was killed.
func TestNodeIncompatibleSuccessor(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	n := newTestNode(t)
	socket := filepath.Join(t.TempDir(), "handover.sock")
	n.args = n.files("from.example:53 {\n    bind __PILLAR__LOCAL__DNS__\n    template IN A {\n        answer \"{{.Name}} 5 IN A 192.0.2.99\"\n    }\n    handover " + socket + " {\n        remain\n    }\n}\n")
	p := n.start()
	tables := n.tables()
	for range 2 {
		c, err := net.Dial("unixpacket", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		buf := make([]byte, 4096)
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err = c.Write([]byte(`{"Kind":"hello","Version":99}`)); err != nil {
			t.Fatal(err)
		}
		size, err := c.Read(buf)
		if got := string(buf[:max(0, size)]); err != nil || !strings.Contains(got, "has version 99 of the protocol") {
			t.Errorf("reply to a successor of version 99: got %q, error %v, want that it is refused", got, err)
		}
		for _, server := range []string{nodeDNS, clusterDNS, cluster6} {
			n.answered(n.dial("udp", server), byNode)
		}
		if now := n.tables(); !slices.Equal(now, tables) {
			t.Errorf("tables: got %q, want %q as before", now, tables)
		}
		pid := n.worker(p, 0)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		n.worker(p, pid)
		n.answered(n.dial("udp", clusterDNS), byNode)
		n.eventually("socket of the next worker", p, func() bool {
			c, err := net.Dial("unixpacket", socket)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
	}
	n.end(p, syscall.SIGTERM)
	n.without(p, nodeDNS, clusterDNS, cluster6)
}

// As process 1 of a container the supervisor starts the worker again, waits for the ends of
// processes that are not its own, and ends at SIGTERM.
func TestNodeFirstProcess(t *testing.T) {
	long(t)
	debian.Program(t, "nsenter")
	n := newTestNode(t)
	p := n.startChanged(func(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID} }, "-metrics-listen-address=127.0.0.1:9353")
	n.eventually("answer of the node", p, func() bool { return answer(n.dial("udp", clusterDNS), time.Second) == byNode })
	children := func() []string {
		var all []string
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.Process.Pid))
		for _, task := range tasks {
			text, _ := os.ReadFile(task)
			all = append(all, strings.Fields(string(text))...)
		}
		return all
	}
	for range 3 {
		pid := n.worker(p, 0)
		// The shell ends, and its child is the supervisor's from then on.
		if out, err := exec.Command("nsenter", "--target", strconv.Itoa(p.Process.Pid), "--pid", "sh", "-c", "sleep 0.2 >/dev/null 2>&1 &").CombinedOutput(); err != nil {
			t.Fatalf("nsenter: %v: %s", err, out)
		}
		n.eventually("end of the process", p, func() bool { return len(children()) == 1 })
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		n.eventually("next worker alone", p, func() bool { now := children(); return len(now) == 1 && now[0] != strconv.Itoa(pid) })
		n.answered(n.dial("udp", clusterDNS), byNode)
	}
	_ = p.Process.Signal(syscall.SIGUSR1)
	n.eventually("reload", p, func() bool { return strings.Contains(p.log.String(), "Reloading complete") })
	n.end(p, syscall.SIGTERM)
	n.without(p, nodeDNS, clusterDNS, cluster6)
	n.answered(n.dial("udp", clusterDNS), byReplica)
}

// A TCP connection of a pod stays open while process after process takes over, with each way
// to capture queries.
func TestNodeConnectionUpgrade(t *testing.T) {
	eachCapture(t, func(n *testNode, capture string) {
		n.args = n.files("from.example:53 {\n    bind __PILLAR__LOCAL__DNS__\n    template IN A {\n        answer \"{{.Name}} 5 IN A 192.0.2.99\"\n    }\n    handover " + filepath.Join(n.t.TempDir(), "handover.sock") + " {\n        remain\n    }\n}\n")
		p := n.startCaptured(capture)
		var open []*dns.Conn
		for _, server := range []string{nodeDNS, clusterDNS, cluster6} {
			c := n.dial("tcp", server)
			n.answered(c, byNode)
			open = append(open, c)
		}
		for range 2 {
			next := n.start(capture)
			n.eventually("end of the hand-over", p, func() bool { return strings.Contains(p.log.String(), "waiting for a signal") })
			n.end(p, syscall.SIGTERM)
			p = next
			for _, c := range open {
				n.answered(c, byNode)
			}
		}
		n.end(p, syscall.SIGTERM)
	})
}

// With address, too, the replica answers while a rule of the node drops the queries, and the
// node's cache does again after the rule is gone. A few queries are tests. Queries of the node
// itself, which the rule does not concern, change nothing.
func TestNodeAddressDropped(t *testing.T) {
	long(t)
	n := newTestNode(t)
	p := n.startCaptured("-capture=address")
	for _, drop := range []func(string){n.drop, n.dropReplies} {
		c := n.dial("udp", clusterDNS)
		n.answered(c, byNode)
		drop(clusterDNS)
		dropped := time.Now()
		n.eventually("answer of the replica", p, func() bool { return answer(c, 200*time.Millisecond) == byReplica })
		t.Logf("the replica answers %v after the rule", time.Since(dropped).Round(time.Millisecond))
		n.answered(n.dial("tcp", clusterDNS), byReplica)
		n.answered(n.dial("udp", cluster6), byNode)
		n.answered(n.dial("udp", nodeDNS), byNode)
		n.flush("policy")
		n.eventually("answer of the node", p, func() bool { return answer(c, time.Second) == byNode })
		n.eventually("connection to the node", p, func() bool { return answer(n.dial("tcp", clusterDNS), time.Second) == byNode })
	}
	if got := strings.Count(p.log.String(), "Rules of the node drop packets of pods"); got != 2 {
		t.Errorf("warnings: got %d, want 2; log:\n%s", got, p.log)
	}
	n.end(p, syscall.SIGTERM)
	n.without(p, nodeDNS, clusterDNS, cluster6)
}
