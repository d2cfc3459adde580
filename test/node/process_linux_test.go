package node

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/cmd"
	"github.com/seamark/seamark/node/tcx"
	"github.com/seamark/seamark/test/program"
)

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

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// times are shorter than a node's, so that tests need not wait for them.
var times = cmd.NodeTimes{
	Times: tcx.Times{Retry: time.Second, Count: 50 * time.Millisecond},
	Pause: time.Second, Pages: 50 * time.Millisecond,
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
	c := program.Command(n.t, n.t.TempDir(), append(append([]string{}, n.args...), args...)...)
	c.Env = append(c.Env, "KUBE_DNS_UPSTREAM_SERVICE_HOST="+upstreamIP)
	program.SetTimes(c, times)
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
	case <-time.After(time.Minute):
		n.t.Fatalf("the process did not end within a minute after %v; its log:\n%s", s, p.log)
	}
}

func (n *testNode) eventually(what string, p *nodeProcess, condition func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("no %s within a minute; log of the process:\n%s", what, p.log)
		}
	}
}

// dial opens a socket of the pod to a DNS server.
func (n *testNode) dial(network, server string) *dns.Conn {
	n.t.Helper()
	return n.dialFrom(n.pod, network, server)
}

func (n *testNode) dialFrom(pod namespace, network, server string) *dns.Conn {
	n.t.Helper()
	var conn net.Conn
	var err error
	pod.do(func() { conn, err = net.DialTimeout(network, net.JoinHostPort(server, "53"), patience) })
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	return &dns.Conn{Conn: conn}
}

// patience limits each wait for a reply. It is long for busy machines.
const patience = time.Minute

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
	if got := answer(c, patience); got != want {
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
