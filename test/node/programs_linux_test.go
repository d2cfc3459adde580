package node

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/node/tcx"
)

// programCaptures are the ways to capture queries with BPF programs. The function reports whether
// the kernel can.
var programCaptures = map[string]func() (tcx.Support, error){"tcx": tcx.Probe, "clsact": tcx.ProbeClsact}

// eachProgramCapture runs a test for each way to capture queries with BPF programs.
func eachProgramCapture(t *testing.T, test func(n *testNode, capture string)) {
	long(t)
	for capture, probe := range programCaptures {
		t.Run(capture, func(t *testing.T) {
			n := newTestNode(t)
			var support tcx.Support
			var err error
			n.do(func() { support, err = probe() })
			if support == tcx.Unsupported {
				t.Skipf("BPF programs cannot capture queries: %v", err)
			}
			test(n, "-capture="+capture)
		})
	}
}

// filters returns the filters of tc at both sides of an interface of the node.
func (n *testNode) filters(name string) (found []string) {
	n.t.Helper()
	for _, side := range []string{"ingress", "egress"} {
		var out []byte
		n.do(func() { out, _ = exec.Command("tc", "filter", "show", "dev", name, side).Output() })
		words := strings.Fields(string(out))
		for i, word := range words[min(1, len(words)):] {
			if name := words[i]; word == "direct-action" && strings.HasPrefix(name, "seamark_") {
				found = append(found, name)
			}
		}
	}
	return found
}

// When everything is killed while pods send queries, the replica answers at once: the
// programs need the sockets of the process. Programs that stay, those of clsact, capture
// nothing, and the next process or cleanup removes them.
func TestNodeProgramsKilled(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		for range 3 {
			p := n.startCaptured(capture)
			pid := n.worker(p, 0)
			l := n.load(clusterDNS, cluster6)
			n.eventually("answers", p, func() bool { return l.node.Load() > int64(nodeRate()/4) })
			answered := l.node.Load() + l.replica.Load()
			n.end(p, syscall.SIGKILL)
			n.eventually("end of the worker", p, func() bool { return processEnded(pid) })
			// Until the kernel has closed the sockets, which a busy machine delays, they receive queries.
			limit := l.sent.Load() - answered + int64(len(l.conns)) // a sender counts after it sends
			before := l.replica.Load()
			n.eventually("answers of the replica", p, func() bool { return l.replica.Load() > before+int64(nodeRate()/4) })
			lost := l.end()
			n.t.Logf("%v, %d lost, %d sent until the end of the processes", l, lost, limit)
			if lost > limit || l.refused.Load() != 0 {
				n.t.Errorf("SIGKILL of all processes: got %v, %d lost, want no errors and at most %d lost, those sent until the end of the processes; log:\n%s", l, lost, limit, p.log)
			}
		}
		if capture != "-capture=clsact" {
			if got := n.programs("pod"); got != 0 {
				n.t.Errorf("programs after SIGKILL: got %d, want none", got)
			}
			return
		}
		if got := n.filters("pod"); len(got) != 2 {
			n.t.Errorf("filters after SIGKILL: got %q, want two", got)
		}
		p := n.startCaptured("-capture=address")
		if got := n.filters("pod"); len(got) != 0 || !strings.Contains(p.log.String(), "Removed filters that earlier processes have left") {
			n.t.Errorf("filters after the next start: got %q, want none; log:\n%s", got, p.log)
		}
		n.end(p, syscall.SIGTERM)
		p = n.startCaptured(capture)
		if out, code := n.cleanup(); code != 1 {
			n.t.Errorf("cleanup while a process captures: got exit status %d and %q, want an error", code, out)
		}
		n.answered(n.dial("udp", clusterDNS), byNode)
		n.end(p, syscall.SIGKILL)
		if out, code := n.cleanup(); code != 0 || !strings.Contains(out, "BPF filters of interfaces") || len(n.filters("pod")) != 0 {
			n.t.Errorf("cleanup: got exit status %d, %q, and filters %q, want none of them", code, out, n.filters("pod"))
		}
		n.answered(n.dial("udp", clusterDNS), byReplica)
	})
}

// The programs capture queries of both families and protocols without tracked connections.
// After SIGTERM the replica answers.
func TestNodePrograms(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		udp := n.dial("udp", cluster6)
		n.answered(udp, byReplica)
		p := n.startCaptured(capture)
		n.answered(udp, byNode)
		started := n.tracked()
		for range 20 {
			for _, server := range []string{nodeDNS, clusterDNS, cluster6} {
				n.answered(n.dial("udp", server), byNode)
				n.answered(n.dial("tcp", server), byNode)
			}
		}
		if after := n.tracked(); len(after) > len(started) {
			n.t.Errorf("tracked connections after 120 queries: got %d more, want none:\n%s", len(after)-len(started), strings.Join(after, ""))
		}
		if err := syscall.Kill(n.worker(p, 0), syscall.SIGKILL); err != nil {
			n.t.Fatal(err)
		}
		n.answered(udp, byNode)
		n.end(p, syscall.SIGTERM)
		n.answered(udp, byReplica)
		n.without(p, nodeDNS, clusterDNS, cluster6)
		if got := n.filters("pod"); len(got)+n.programs("pod") != 0 {
			n.t.Errorf("after the end: got filters %q and %d programs, want none", got, n.programs("pod"))
		}
	})
}

// Process after process takes over while programs capture queries: none is lost.
func TestNodeProgramsUpgrade(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		n.addPods()
		n.args = n.files(`from.example:53 {
    bind __PILLAR__LOCAL__DNS__
    template IN A {
        answer "{{.Name}} 5 IN A 192.0.2.99"
    }
    handover ` + filepath.Join(n.t.TempDir(), "handover.sock") + ` {
        remain
    }
}
`)
		n.args = slices.DeleteFunc(n.args, func(a string) bool { return strings.HasPrefix(a, "-capture=") })
		p := n.startCaptured(capture)
		l := n.load(clusterDNS, clusterDNS, cluster6, nodeDNS)
		const upgrades = 3
		for range upgrades {
			next := n.start(capture)
			n.eventually("end of the hand-over", p, func() bool { return strings.Contains(p.log.String(), "waiting for a signal") })
			n.end(p, syscall.SIGTERM)
			p = next
		}
		lost := l.end()
		n.t.Logf("%v, %d lost", l, lost)
		if lost != 0 || l.replica.Load() != 0 || l.refused.Load() != 0 {
			n.t.Errorf("%d upgrades: got %v, %d lost, want all answered by the node; log:\n%s", upgrades, l, lost, p.log)
		}
		n.end(p, syscall.SIGTERM)
		n.eventually("answer of the replica", p, func() bool { return answer(n.dial("udp", clusterDNS), time.Second) == byReplica })
	})
}
