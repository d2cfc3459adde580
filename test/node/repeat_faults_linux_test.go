package node

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// While the worker is stopped, the kernel repeats the replies that it has for 1.5 s at most, when the heartbeat
// is too old, and none after the gate is closed: the replica answers.
func TestNodeRepeatStopped(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		n.cachedByNode()
		p := n.startRepeating([]*dns.Conn{n.dial("udp", clusterDNS), n.dial("udp", cluster6)}, capture)
		pid := n.worker(p, 0)
		for i, server := range []string{clusterDNS, cluster6, clusterDNS, cluster6} {
			c, name := n.dial("udp", server), fmt.Sprintf("stopped%d.from.example.", i)
			for range 3 { // the second is answered from the cache, and its reply is stored
				if got := answerTo(c, name, patience); got != byNode {
					n.t.Errorf("%s from %s: got %s, want %s", name, server, got, byNode)
				}
			}
			stored := time.Now()
			n.stop(p, pid)
			stopped := time.Now() // no reply is stored later
			repeated, last, first := 0, time.Duration(0), time.Duration(0)
			replica := 0
			n.eventually("answers of the replica", p, func() bool {
				sent := time.Since(stopped)
				switch got := answerTo(c, name, 50*time.Millisecond); {
				case got == byReplica:
					if replica++; replica == 1 {
						first = time.Since(stopped)
					}
				case got == byNode && (replica > 0 || sent > 1500*time.Millisecond):
					n.t.Errorf("query to %s, %v after the worker was stopped, after %d answers of the replica: got a repeated reply, want none", server, sent, replica)
				case got == byNode:
					repeated, last = repeated+1, sent
				}
				return replica == 50
			})
			n.t.Logf("%s: %d repeated replies, the last %v after the worker was stopped; the replica answers after %v",
				server, repeated, last.Round(time.Millisecond), first.Round(time.Millisecond))
			if repeated == 0 && stopped.Sub(stored) < 500*time.Millisecond {
				n.t.Errorf("queries to %s while the worker is stopped: got no repeated replies, want some for a while; log:\n%s", server, p.log)
			}
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				n.t.Fatal(err)
			}
			n.eventually("answer of the node", p, func() bool { return answer(n.dial("udp", server), time.Second) == byNode })
		}
		n.end(p, syscall.SIGTERM)
	})
}

// After the hand-over to an instance with another configuration no reply of the earlier one is
// repeated, and no query is lost.
func TestNodeRepeatUpgrade(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		n.cachedByNode()
		n.answers("127.0.0.2", byReplica)
		base := n.args[slices.Index(n.args, "-basecorefile")+1]
		const upstream = "forward from.example 127.0.0.1\n"
		text := strings.Replace(read(n.t, base), "    errors\n", "    errors\n    handover "+filepath.Join(n.t.TempDir(), "handover.sock")+" {\n        remain\n    }\n", 1)
		write(n.t, base, text)
		sockets := []*dns.Conn{n.dial("udp", clusterDNS), n.dial("udp", cluster6)}
		p := n.startRepeating(sockets, capture)
		l := n.load(clusterDNS, cluster6)
		for i, want := range []string{byReplica, byNode, byReplica} {
			n.args = n.files(strings.Replace(text, upstream, fmt.Sprintf("forward from.example 127.0.0.%d\n", 2-i%2), 1))
			next := n.start(capture)
			n.eventually("end of the hand-over", p, func() bool { return strings.Contains(p.log.String(), "waiting for a signal") })
			check := func(when string) {
				n.t.Helper()
				for range 100 {
					for _, c := range sockets {
						if got := answer(c, patience); got != want {
							n.t.Fatalf("upgrade %d, %s: from.example. from %s: got %s, want %s; log:\n%s", i, when, c.RemoteAddr(), got, want, next.log)
						}
					}
				}
			}
			check("after the hand-over")
			n.end(p, syscall.SIGTERM)
			check("after the end of the earlier instance")
			p = next
			before := n.total(p, repeatedReplies)
			n.eventually("repeated replies", p, func() bool {
				check("later")
				return n.total(p, repeatedReplies) > before
			})
		}
		lost := l.end()
		n.t.Logf("%v, %d lost", l, lost)
		if lost != 0 || l.refused.Load() != 0 {
			n.t.Errorf("three upgrades: got %v, %d lost, want none lost; log:\n%s", l, lost, p.log)
		}
		n.end(p, syscall.SIGTERM)
	})
}

// addBridged adds pods behind ports of a bridge. The bridge has a fixed address, as those of network
// plugins: otherwise it changes with the ports, and the pods send frames to the earlier one.
func (n *testNode) addBridged(count int) (pods []namespace) {
	n.t.Helper()
	n.ip(`link add bridge0 address 02:00:00:00:05:01 type bridge
		addr add 10.0.5.1/24 dev bridge0
		addr add fd00:5::1/64 dev bridge0 nodad
		link set bridge0 up`)
	for i := range count {
		pod := newNamespace(n.t)
		n.ip(fmt.Sprintf(`link add port%[1]d type veth peer name eth0 netns %[2]s
			link set port%[1]d master bridge0
			link set port%[1]d up`, i, strings.Split(pod.path, "/")[2]))
		pod.ip(fmt.Sprintf(`addr add 10.0.5.%[1]d/24 dev eth0
			addr add fd00:5::%[1]d/64 dev eth0 nodad
			link set eth0 up
			route add default via 10.0.5.1
			-6 route add default via fd00:5::1`, i+2))
		pod.reach("10.0.5.1")
		pod.reach("fd00:5::1")
		pods = append(pods, pod)
	}
	return pods
}

// The kernel repeats replies to pods behind a bridge: the right ones, to the pod that has sent the
// query, with right checksums.
func TestNodeRepeatBridged(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		n.args = n.files(cached)
		pods := n.addBridged(2)
		var sockets []*dns.Conn
		for _, pod := range pods {
			sockets = append(sockets, n.dialFrom(pod, "udp", clusterDNS), n.dialFrom(pod, "udp", cluster6))
		}
		p := n.startRepeating(sockets, capture)
		for i, prepare := range []func(){
			func() {},
			func() { n.withoutOffload("port0") }, // of replies
			func() { pods[0].withoutOffload("eth0"); n.withoutOffload("bridge0") }, // of queries
		} {
			prepare()
			before, sent := n.total(p, repeatedReplies), 0
			n.eventually("repeated replies", p, func() bool {
				for name := range 100 {
					for _, c := range sockets {
						name := fmt.Sprintf("name%d.example.", name%5)
						if rr := n.ask(c, name); rr.A.String() != byReplica || rr.Hdr.Ttl > 5 || rr.Hdr.Name != name {
							n.t.Errorf("variant %d: answer: got %v, want %s with a TTL of at most 5", i, rr, byReplica)
						}
						sent++
					}
				}
				return n.total(p, repeatedReplies)-before > 400
			})
			n.t.Logf("variant %d: %v of %d replies repeated", i, n.total(p, repeatedReplies)-before, sent)
		}
		n.end(p, syscall.SIGTERM)
	})
}
