package node

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/miekg/dns"
)

// A nodeSocket is a socket of a pod, with the number of its queries and the answers to them.
type nodeSocket struct {
	*testNode
	net.Conn
	server       string
	sent         uint16
	node, answer map[uint16]bool // the IDs of the queries that the node has answered, and of all that were answered
}

func (n *testNode) socket(server string) *nodeSocket {
	n.t.Helper()
	return &nodeSocket{testNode: n, Conn: n.dial("udp", server).Conn, server: server, node: map[uint16]bool{}, answer: map[uint16]bool{}}
}

// send sends queries, whose IDs are their numbers.
func (s *nodeSocket) send(count int) {
	s.t.Helper()
	for range count {
		q := new(dns.Msg).SetQuestion("from.example.", dns.TypeA)
		q.Id = s.sent
		packet, err := q.Pack()
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.Write(packet); err != nil {
			s.t.Errorf("query %d to %s: %v", s.sent, s.server, err)
		}
		s.sent++
	}
}

// receive receives answers until there are as many as wanted, for ten seconds at most.
func (s *nodeSocket) receive(want int) {
	s.t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(10 * time.Second))
	for buf := make([]byte, 512); len(s.answer) < want; {
		size, err := s.Read(buf)
		if err != nil {
			s.t.Errorf("queries to %s: got %d answers of %d, %d by the node: %v", s.server, len(s.answer), want, len(s.node), err)
			return
		}
		m := new(dns.Msg)
		if err := m.Unpack(buf[:size]); err != nil || len(m.Answer) != 1 || s.answer[m.Id] {
			s.t.Errorf("queries to %s: got %v, error %v, want one answer for each", s.server, m, err)
			return
		}
		s.answer[m.Id] = true
		if m.Answer[0].(*dns.A).A.String() == byNode {
			s.node[m.Id] = true
		}
	}
}

// stop stops a process, and waits until all its threads have stopped.
func (n *testNode) stop(p *nodeProcess, pid int) {
	n.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		n.t.Fatal(err)
	}
	n.eventually("stopped process", p, func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, thread := range threads {
			if stat, err := os.ReadFile(thread); err == nil && !strings.Contains(string(stat), ") T ") {
				return false
			}
		}
		return len(threads) > 0
	})
}

// capturing returns the names of the tables whose rules send queries to a ClusterIP to the node's
// cache.
func (n *testNode) capturing() (names []string) {
	n.t.Helper()
	n.do(func() {
		c, err := nftables.New()
		if err != nil {
			n.t.Error(err)
			return
		}
		for _, name := range n.tables() {
			table := &nftables.Table{Name: name, Family: nftables.TableFamilyINet}
			rules, _ := c.GetRules(table, &nftables.Chain{Name: "prerouting"}) // none if the table has been removed
			if slices.ContainsFunc(rules, func(r *nftables.Rule) bool {
				return slices.ContainsFunc(r.Exprs, func(e expr.Any) bool {
					compare, ok := e.(*expr.Cmp)
					return ok && bytes.Equal(compare.Data, netip.MustParseAddr(clusterDNS).AsSlice())
				})
			}) {
				names = append(names, name)
			}
		}
	})
	return names
}

// The queries that wait in the sockets when the gate is closed are all answered, by the worker
// when it continues or by the next one, also on sockets whose next queries the replica answers.
func TestNodeGateWaitingQueries(t *testing.T) {
	for name, next := range map[string]syscall.Signal{"continued": syscall.SIGCONT, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			eachCapture(t, func(n *testNode, capture string) { n.gateWaitingQueries(capture, next) })
		})
	}
}

func (n *testNode) gateWaitingQueries(capture string, next syscall.Signal) {
	p := n.startCaptured(capture)
	pid := n.worker(p, 0)
	var sockets []*nodeSocket
	for _, server := range []string{clusterDNS, cluster6, nodeDNS} {
		sockets = append(sockets, n.socket(server), n.socket(server))
	}
	n.stop(p, pid)
	const count = 50
	for _, s := range sockets {
		s.send(count)
	}
	closed := func() bool { return strings.Contains(p.log.String(), "Closed the gate") }
	exact := !closed()
	n.eventually("closed gate", p, closed)
	for i := range sockets {
		if i%2 == 0 { // the other socket of the same server sends no more
			sockets[i].send(count)
		}
	}
	for i, s := range sockets {
		if i%2 == 0 && s.server != nodeDNS {
			s.receive(count)
			if exact && len(s.node) > 0 {
				n.t.Errorf("queries to %s while the gate is closed: got %d answers by the node, want none", s.server, len(s.node))
			}
		}
	}
	if err := syscall.Kill(pid, next); err != nil {
		n.t.Fatal(err)
	}
	for _, s := range sockets {
		s.receive(int(s.sent))
		want := count
		if s.server == nodeDNS {
			want = int(s.sent)
		}
		if exact && len(s.node) != want {
			n.t.Errorf("queries to %s: got %d answers by the node, want %d; log:\n%s", s.server, len(s.node), want, p.log)
		}
	}
	n.eventually("open gate", p, func() bool { return strings.Contains(n.metrics(p), "\nseamark_node_gate_open 1\n") })
	n.end(p, syscall.SIGTERM)
	n.without(p, nodeDNS, clusterDNS, cluster6)
}

// At SIGTERM the replies to queries that the worker has read still pass, also on sockets whose
// next queries the replica answers.
func TestNodeGatePendingQueries(t *testing.T) {
	eachCapture(t, func(n *testNode, capture string) {
		var arrived atomic.Int32
		pending := make(chan bool)
		release := sync.OnceFunc(func() { close(pending) })
		defer release()
		n.answersWith("127.0.0.1", func(w dns.ResponseWriter, q *dns.Msg) {
			arrived.Add(1)
			<-pending
			rr, _ := dns.NewRR(q.Question[0].Name + " 5 IN A " + byNode)
			_ = w.WriteMsg(&dns.Msg{MsgHdr: dns.MsgHdr{Id: q.Id, Response: true}, Question: q.Question, Answer: []dns.RR{rr}})
		})
		n.args = n.files(`from.example:53 {
    bind __PILLAR__LOCAL__DNS__
    template IN A {
        answer "{{.Name}} 5 IN A 192.0.2.99"
    }
}
pending.example:53 {
    bind __PILLAR__LOCAL__DNS__
    forward . 127.0.0.1
}
`)
		p := n.startCaptured(capture)
		n.answered(n.dial("udp", cluster6), byNode)
		sockets := []*dns.Conn{n.dial("udp", clusterDNS), n.dial("udp", cluster6), n.dial("udp", nodeDNS)}
		for i, c := range sockets {
			if err := c.WriteMsg(new(dns.Msg).SetQuestion(fmt.Sprintf("%d.pending.example.", i), dns.TypeA)); err != nil {
				n.t.Fatal(err)
			}
			n.eventually("query to the upstream", p, func() bool { return int(arrived.Load()) > i })
		}
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			n.t.Fatal(err)
		}
		for _, c := range sockets[:2] { // until the gate is closed
			n.eventually("answer of the replica", p, func() bool { return answer(c, time.Second) == byReplica })
		}
		release()
		for i, c := range sockets {
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if m, err := c.ReadMsg(); err != nil || len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != byNode {
				n.t.Errorf("query %d to %s before SIGTERM: got %v, error %v, want the answer of the node; log:\n%s", i, c.RemoteAddr(), m, err, p.log)
			}
		}
		n.end(p, syscall.SIGCONT) // it ends by itself
		n.without(p, nodeDNS, clusterDNS, cluster6)
	})
}
