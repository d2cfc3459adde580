package node

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// A nodeLoad sends queries of pods from several sockets at a constant rate, without
// retries, and counts the replies by their sender.
type nodeLoad struct {
	sent, node, replica, refused atomic.Int64
	last                         atomic.Int64 // time of the last reply, since start
	gap                          atomic.Int64 // the longest time without a reply
	start                        time.Time
	stop                         chan struct{}
	senders, receivers           sync.WaitGroup
	conns                        []net.Conn
}

// nodeRate is the number of queries in a second, or that of SEAMARK_NODE_RATE.
func nodeRate() int {
	if rate, err := strconv.Atoi(os.Getenv("SEAMARK_NODE_RATE")); err == nil {
		return rate
	}
	return 1000
}

// load starts to send queries to the servers from a socket each, and each from the next pod.
func (n *testNode) load(servers ...string) *nodeLoad {
	n.t.Helper()
	l := &nodeLoad{start: time.Now(), stop: make(chan struct{})}
	packet, err := new(dns.Msg).SetQuestion("from.example.", dns.TypeA).Pack()
	if err != nil {
		n.t.Fatal(err)
	}
	pods := append([]namespace{n.pod}, n.more...)
	for i, server := range servers {
		c := n.dialFrom(pods[i%len(pods)], "udp", server).Conn.(*net.UDPConn)
		enlarge(c)
		l.conns = append(l.conns, c)
		l.receivers.Go(func() { l.receive(c) })
		l.senders.Go(func() { l.send(c, packet, float64(nodeRate())/float64(len(servers))) })
	}
	return l
}

func (l *nodeLoad) send(c net.Conn, packet []byte, rate float64) {
	start, ticker := time.Now(), time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for sent := 0.0; ; {
		for ; sent < rate*time.Since(start).Seconds(); sent++ {
			if _, err := c.Write(packet); err != nil { // ICMP for an earlier query
				l.refused.Add(1)
				continue
			}
			l.sent.Add(1)
		}
		select {
		case <-ticker.C:
		case <-l.stop:
			return
		}
	}
}

func (l *nodeLoad) receive(c net.Conn) {
	for buf := make([]byte, 512); ; {
		size, err := c.Read(buf)
		if err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				return
			}
			l.refused.Add(1)
			continue
		}
		now := int64(time.Since(l.start))
		if before := l.last.Swap(now); before != 0 {
			for gap := l.gap.Load(); now-before > gap && !l.gap.CompareAndSwap(gap, now-before); gap = l.gap.Load() {
			}
		}
		if address := net.IP(buf[size-4 : size]).String(); address == byNode {
			l.node.Add(1)
		} else if address == byReplica {
			l.replica.Add(1)
		}
	}
}

// end stops sending, waits for the replies on their way, and returns the number of queries
// without a reply.
func (l *nodeLoad) end() (lost int64) {
	close(l.stop)
	l.senders.Wait()
	answered := func() int64 { return l.node.Load() + l.replica.Load() }
	for before := int64(-1); before != answered() && answered() < l.sent.Load(); time.Sleep(300 * time.Millisecond) {
		before = answered()
	}
	for _, c := range l.conns {
		_ = c.SetReadDeadline(time.Now())
	}
	l.receivers.Wait()
	return l.sent.Load() - answered()
}

func (l *nodeLoad) String() string {
	return fmt.Sprintf("%d queries, %d answered by the node, %d by the replica, %d errors, longest time without a reply %v",
		l.sent.Load(), l.node.Load(), l.replica.Load(), l.refused.Load(), time.Duration(l.gap.Load()).Round(time.Millisecond))
}

// worker returns the process ID of the process that answers queries, other than old.
func (n *testNode) worker(p *nodeProcess, old int) (pid int) {
	n.t.Helper()
	n.eventually("worker", p, func() bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.Process.Pid))
		for _, task := range tasks {
			children, _ := os.ReadFile(task)
			for _, child := range strings.Fields(string(children)) {
				if pid, _ = strconv.Atoi(child); pid != old {
					return true
				}
			}
		}
		return false
	})
	return pid
}

// processEnded reports whether a process and all its threads have ended. Its new parent may not have
// waited for it yet.
func processEnded(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	return err != nil || strings.Contains(string(stat), ") Z ") && len(threads) == 1
}

// kill kills the worker and waits until the next one answers.
func (n *testNode) kill(p *nodeProcess, l *nodeLoad, pid int) (next int) {
	n.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
	next = n.worker(p, pid)
	before := l.node.Load()
	n.eventually("answers after the end of the worker", p, func() bool { return l.node.Load() > before+int64(nodeRate()) })
	// A worker reads up to 16 waiting queries at once, of which a further kill would lose all.
	n.eventually("answers to the queries that waited", p, func() bool { return l.sent.Load()-l.node.Load()-l.replica.Load() < 100 })
	return next
}

// When the worker is killed, queries of three pods, two with IPv4 and one with IPv6, wait in the
// sockets for the next one. Only those are lost that it has read and not answered.
func TestNodeWorkerKilled(t *testing.T) { eachCapture(t, (*testNode).killWorkers) }

func (n *testNode) killWorkers(capture string) {
	n.addPods()
	p := n.startCaptured(capture)
	pid := n.worker(p, 0)
	tables := n.tables()
	l := n.load(clusterDNS, clusterDNS, cluster6, nodeDNS)
	const kills = 5
	for range kills {
		pid = n.kill(p, l, pid)
	}
	lost := l.end()
	// On a machine that is so busy that a start takes a second, the replica answers meanwhile. The
	// queries that wait in the sockets are not lost.
	closed := int64(strings.Count(p.log.String(), "Closed the gate"))
	n.t.Logf("%v, %d lost, gate closed %d times", l, lost, closed)
	if limit := int64(5 * kills); lost > limit {
		n.t.Errorf("lost queries: got %d in %d kills of the worker, want at most %d; log:\n%s", lost, kills, limit, p.log)
	}
	if l.replica.Load() > 0 && closed == 0 && time.Duration(l.gap.Load()) < 900*time.Millisecond || l.refused.Load() > 0 {
		n.t.Errorf("got %v, want all answers by the node and no errors; log:\n%s", l, p.log)
	}
	n.eventually("open gate", p, func() bool { return strings.Contains(n.metrics(p), "\nseamark_node_gate_open 1\n") })
	if now := n.tables(); len(now) != 1 || now[0] != tables[0] && closed == 0 {
		n.t.Errorf("tables: got %q, want %q as before", now, tables)
	}
	if metrics := n.metrics(p); !strings.Contains(metrics, fmt.Sprintf("\nseamark_node_worker_restarts_total %d\n", kills)) {
		n.t.Errorf("metrics: got\n%s\nwant %d restarts", metrics, kills)
	}
	n.end(p, syscall.SIGTERM)
	n.without(p, nodeDNS, clusterDNS, cluster6)
}

// metrics returns the metrics of a node.
func (n *testNode) metrics(p *nodeProcess) (text string) {
	n.t.Helper()
	return n.page(p, "127.0.0.1:9353", "/metrics")
}

// page returns a page, with the head of the reply.
func (n *testNode) page(p *nodeProcess, address, path string) (text string) {
	n.t.Helper()
	n.eventually(path, p, func() bool {
		var c net.Conn
		var err error
		n.do(func() { c, err = net.Dial("tcp", address) })
		if err != nil {
			return false
		}
		defer c.Close()
		fmt.Fprint(c, "GET "+path+" HTTP/1.0\r\nHost: localhost\r\n\r\n")
		reply, err := io.ReadAll(c)
		text = strings.ReplaceAll(string(reply), "\r", "")
		return err == nil
	})
	return text
}

// When the supervisor is killed, alone or with the worker, both end and the replica
// answers, on the same sockets. A new process takes over what is left.
func TestNodeSupervisorKilled(t *testing.T) {
	long(t)
	for name, both := range map[string]bool{"alone": false, "with the worker": true} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.addPods()
			p := n.start()
			pid := n.worker(p, 0)
			l := n.load(clusterDNS, clusterDNS, cluster6)
			n.eventually("answers", p, func() bool { return l.node.Load() > int64(nodeRate()/4) })
			killed := time.Now()
			if both {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			n.end(p, syscall.SIGKILL)
			n.eventually("answer of the replica", p, func() bool { return l.replica.Load() > 0 })
			t.Logf("the replica answers within %v", time.Since(killed))
			n.eventually("end of the worker", p, func() bool { return processEnded(pid) })
			before := l.replica.Load()
			n.eventually("answers of the replica", p, func() bool { return l.replica.Load() > before+int64(nodeRate()/4) })
			if tables := n.tables(); len(tables) != 0 {
				t.Errorf("tables after SIGKILL: got %q, want none", tables)
			}
			t.Logf("%v, %d lost", l, l.end())
			p = n.start()
			n.answered(n.dial("udp", clusterDNS), byNode)
			n.end(p, syscall.SIGTERM)
			n.without(p, nodeDNS, clusterDNS, cluster6)
		})
	}
}

// When the worker is stopped, the gate is closed within 1.5 s and the replica answers. It is
// opened again when the worker continues.
func TestNodeWorkerStopped(t *testing.T) {
	long(t)
	n := newTestNode(t)
	p := n.start()
	pid := n.worker(p, 0)
	c, c6 := n.dial("udp", clusterDNS), n.dial("udp", cluster6)
	n.answered(c, byNode)
	n.stop(p, pid)
	stopped := time.Now()
	n.eventually("closed gate", p, func() bool { return len(n.capturing()) == 0 })
	t.Logf("the gate was closed after %v", time.Since(stopped))
	n.eventually("answer of the replica", p, func() bool { return answer(c, 100*time.Millisecond) == byReplica })
	n.answered(c6, byReplica)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	n.eventually("open gate", p, func() bool { return len(n.capturing()) == 1 })
	n.eventually("answer of the node", p, func() bool { return answer(n.dial("udp", clusterDNS), time.Second) == byNode })
	n.end(p, syscall.SIGTERM)
	n.without(p, nodeDNS, clusterDNS, cluster6)
}

// When workers end as soon as they start, the gate is closed, and the replica answers. It
// is opened again when the cause is gone.
func TestNodeWorkerCrashLoop(t *testing.T) {
	long(t)
	n := newTestNode(t)
	base, text := n.template()
	imported := filepath.Join(filepath.Dir(base), "imported")
	write(t, imported, "")
	write(t, base, text+"import "+imported+"\n")
	p := n.start()
	write(t, imported, "invalid {\n") // also for the Corefile that was valid
	write(t, base, text+"import "+imported+"\n# changed\n")
	n.eventually("error about the Corefile", p, func() bool { return strings.Contains(p.log.String(), "Reload failed") })
	n.answered(n.dial("udp", clusterDNS), byNode) // with the old one
	if err := syscall.Kill(n.worker(p, 0), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c := n.dial("udp", clusterDNS)
	n.eventually("answer of the replica", p, func() bool { return answer(c, 100*time.Millisecond) == byReplica })
	n.eventually("growing delays", p, func() bool { return strings.Contains(p.log.String(), "interval=800ms") })
	if log := p.log.String(); !strings.Contains(log, "Closed the gate") {
		t.Errorf("got log\n%s\nwant that the gate was closed", log)
	}
	write(t, imported, "")
	n.eventually("answer of the node", p, func() bool { return answer(n.dial("udp", clusterDNS), 100*time.Millisecond) == byNode })
	n.end(p, syscall.SIGTERM)
	n.without(p, nodeDNS, clusterDNS, cluster6)
}

// template returns the file of the template of the Corefile, and its text.
func (n *testNode) template() (file, text string) {
	n.t.Helper()
	file = n.args[slices.Index(n.args, "-basecorefile")+1]
	b, err := os.ReadFile(file)
	if err != nil {
		n.t.Fatal(err)
	}
	return file, string(b)
}

// When a worker ends, the next one serves the Corefile that was valid last, as the other would have done, and the
// present one once it is valid.
func TestNodeWorkerKeepsValidCorefile(t *testing.T) {
	long(t)
	for _, c := range []struct {
		name, file, text, log string
	}{
		{"invalid Corefile", "Corefile.base", "invalid {\n", "Reload failed"},
		{"address of no interface", "Corefile.base", "TEXTother.example:53 {\n bind 203.0.113.9\n whoami\n}\n", "Reload failed"},
		{"another capture", "Corefile.base", "CHANGED", "Changed directive has no effect"},
		{"invalid ConfigMap", "kube-dns/stubDomains", "{", "Invalid ConfigMap of kube-dns, the previous one stays in use"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newTestNode(t)
			base, text := n.template()
			dir := filepath.Dir(base)
			if err := os.Mkdir(filepath.Join(dir, "kube-dns"), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "kube-dns/stubDomains"), `{"stub.example": ["192.0.2.53"]}`)
			p := n.start()
			other := strings.Replace(text, "{\n", "{\n    capture none\n", 1)
			changed := strings.NewReplacer("CHANGED", other, "TEXT", text).Replace(c.text)
			write(t, filepath.Join(dir, c.file), changed)
			n.eventually(c.log, p, func() bool { return strings.Contains(p.log.String(), c.log) })

			for range 2 { // the worker of a worker, too
				old := n.worker(p, 0)
				if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				n.worker(p, old)
				n.answered(n.dial("udp", nodeDNS), byNode)
			}
			if log := p.log.String(); strings.Contains(log, "Closed the gate") {
				t.Errorf("got log\n%s\nwant a worker that serves", log)
			}
			if c.log == "Reload failed" {
				n.eventually("failed reload", p, func() bool { return strings.Contains(n.metrics(p), "\ncoredns_reload_failed_total 1\n") })
			}
			generated, err := os.ReadFile(filepath.Join(dir, "Corefile"))
			if err != nil || c.name == "invalid ConfigMap" && !strings.Contains(string(generated), "stub.example") {
				t.Errorf("Corefile: got %s, error %v; want the stub domain of before", generated, err)
			}

			write(t, base, text)
			write(t, filepath.Join(dir, "kube-dns/stubDomains"), "{}")
			n.eventually("new Corefile", p, func() bool {
				b, err := os.ReadFile(filepath.Join(dir, "Corefile"))
				return err == nil && !strings.Contains(string(b), "stub.example")
			})
			n.answered(n.dial("udp", clusterDNS), byNode)
			n.end(p, syscall.SIGTERM)
		})
	}
}

// Process after process takes over while pods send queries: none is lost.
func TestNodeUpgrades(t *testing.T) {
	long(t)
	n := newTestNode(t)
	n.addPods()
	n.args = n.files(`from.example:53 {
    bind __PILLAR__LOCAL__DNS__
    template IN A {
        answer "{{.Name}} 5 IN A 192.0.2.99"
    }
    handover ` + filepath.Join(t.TempDir(), "handover.sock") + ` {
        remain
    }
}
`)
	p := n.start()
	l := n.load(clusterDNS, clusterDNS, cluster6, nodeDNS)
	const upgrades = 10
	for range upgrades {
		next := n.start()
		n.eventually("end of the hand-over", p, func() bool { return strings.Contains(p.log.String(), "waiting for a signal") })
		n.end(p, syscall.SIGTERM)
		if code := p.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit status of the process that was replaced: got %d, want 0; log:\n%s", code, p.log)
		}
		p = next
	}
	lost := l.end()
	t.Logf("%v, %d lost", l, lost)
	if lost != 0 || l.replica.Load() != 0 || l.refused.Load() != 0 {
		t.Errorf("%d upgrades: got %v, %d lost, want all answered by the node", upgrades, l, lost)
	}
	// The last process keeps the sockets, too.
	c := n.dial("udp", clusterDNS)
	if err := syscall.Kill(n.worker(p, 0), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.answered(c, byNode)
	n.end(p, syscall.SIGTERM)
	n.without(p, nodeDNS, clusterDNS, cluster6)
}

// Without a supervisor one process does all, as node-cache does.
func TestNodeWithoutSupervisor(t *testing.T) {
	n := newTestNode(t)
	p := n.start("-supervise=false")
	n.answered(n.dial("udp", clusterDNS), byNode)
	if children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.Process.Pid)); len(children) > 0 {
		t.Errorf("child processes: got %s, want none", children)
	}
	n.end(p, syscall.SIGTERM)
	n.without(p, nodeDNS, clusterDNS, cluster6)
}

// The exit status is that of the worker: after a second signal it is the signal's.
func TestNodeSignals(t *testing.T) {
	n := newTestNode(t)
	n.args = n.files(`from.example:53 {
    bind __PILLAR__LOCAL__DNS__
    lameduck 60s
    template IN A {
        answer "{{.Name}} 5 IN A 192.0.2.99"
    }
}
`)
	p := n.start("-pidfile", filepath.Join(t.TempDir(), "pid"))
	if pid, err := os.ReadFile(p.Args[len(p.Args)-2]); string(pid) != fmt.Sprintln(p.Process.Pid) {
		t.Errorf("pidfile: got %q, error %v, want %d", pid, err, p.Process.Pid)
	}
	_ = p.Process.Signal(syscall.SIGUSR1)
	n.eventually("reload", p, func() bool { return strings.Contains(p.log.String(), "Reloading complete") })
	_ = p.Process.Signal(syscall.SIGTERM)
	n.eventually("shutdown", p, func() bool { return strings.Contains(p.log.String(), "Shutting down") })
	n.eventually("removed rules", p, func() bool { return len(n.capturing()) == 0 })
	n.answered(n.dial("udp", nodeDNS), byNode) // lameduck
	n.answered(n.dial("udp", clusterDNS), byReplica)
	n.end(p, syscall.SIGTERM)
	if status := p.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("status after a second SIGTERM: got %v, want the end by the signal; log:\n%s", p.ProcessState, p.log)
	}
}
