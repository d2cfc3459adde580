package node

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/test/program"
)

// Steps of the system's clock, of an hour in both directions, in the worker, in the supervisor
// or in both: no heartbeat looks stale or new, and no query is lost. After the step a worker
// that hangs is still noticed.
func TestNodeClockSteps(t *testing.T) {
	eachCapture(t, func(n *testNode, capture string) {
		p := n.startCaptured(capture)
		n.eventually("open gate", p, func() bool { return strings.Contains(n.metrics(p), "\nseamark_node_gate_open 1\n") })
		worker := n.worker(p, 0)
		steps := []func(time.Duration){program.StepClock(n.t, worker), program.StepClock(n.t, p.Process.Pid)}
		l := n.load(clusterDNS, cluster6)
		slow := false // the machine was: a process was stopped for so long that its heartbeat was stale
		for _, d := range []time.Duration{time.Hour, -time.Hour} {
			for _, step := range steps {
				start, before := time.Now(), l.node.Load()
				step(d)
				slow = slow || time.Since(start) > 500*time.Millisecond
				// The queries of two seconds: a stale heartbeat would be noticed.
				n.eventually("answers after the step", p, func() bool { return l.node.Load() > before+int64(2*nodeRate()) })
			}
		}
		lost := l.end()
		n.t.Logf("%v, %d lost", l, lost)
		if lost != 0 || l.refused.Load() != 0 || l.replica.Load() != 0 && !slow {
			n.t.Errorf("steps of the clock: got %v, %d lost, want all answered by the node; log:\n%s", l, lost, p.log)
		}
		if got := n.metrics(p); !strings.Contains(got, "\nseamark_node_worker_restarts_total 0\n") {
			n.t.Errorf("metrics: got\n%s\nwant no restart of the worker", got)
		}
		if err := syscall.Kill(worker, syscall.SIGSTOP); err != nil {
			n.t.Fatal(err)
		}
		n.eventually("answer of the replica", p, func() bool { return answer(n.dial("udp", clusterDNS), 100*time.Millisecond) == byReplica })
		if err := syscall.Kill(worker, syscall.SIGCONT); err != nil {
			n.t.Fatal(err)
		}
		n.eventually("answer of the node", p, func() bool { return answer(n.dial("udp", clusterDNS), time.Second) == byNode })
		n.end(p, syscall.SIGTERM)
	})
}
