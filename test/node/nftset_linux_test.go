package node

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/test/debian"
)

// nft runs the program nft with commands of its language.
func (n namespace) nft(text string) string {
	n.t.Helper()
	debian.Program(n.t, "nft")
	var out []byte
	var err error
	n.do(func() {
		c := exec.Command("nft", "-f", "-")
		c.Stdin = strings.NewReader(text)
		out, err = c.CombinedOutput()
	})
	if err != nil {
		n.t.Fatalf("nft: %v: %s\n%s", err, out, text)
	}
	return string(out)
}

// egress is a table that lets the pod reach the addresses of its set alone, at port 9.
const egress = `table inet egress {
	set agents4 { type ipv4_addr . ipv4_addr; flags timeout; size 4096; }
	chain forward {
		type filter hook forward priority 10; policy accept;
		ip saddr . ip daddr @agents4 accept
		tcp dport 9 reject with icmpx type admin-prohibited
	}
}`

// servesSets makes the node serve names a-X-Y.example with the address 10.9.X.Y, which the replica has, and
// add them to the set.
func (n *testNode) servesSets(options string) {
	n.t.Helper()
	n.nft(egress)
	n.ip("route add 10.9.0.0/16 via 10.0.2.2")
	n.replica.ip("route add local 10.9.0.0/16 dev lo")
	n.args = n.files(`.:53 {
    bind __PILLAR__LOCAL__DNS__
    prometheus 127.0.0.1:9253
    nftset inet egress agents4 {
        min_timeout 30s
    }
    ` + options + `
    template IN A {
        match "^a-([0-9]+)-([0-9]+)[.]example[.]$"
        answer "{{ .Name }} 5 IN A 10.9.{{ index .Match 1 }}.{{ index .Match 2 }}"
    }
}
`)
}

// reaches reports whether packets of a pod pass to an address.
func (n *testNode) reaches(pod namespace, ip string) bool {
	n.t.Helper()
	var err error
	pod.do(func() { _, err = net.DialTimeout("tcp", net.JoinHostPort(ip, "9"), 20*time.Second) })
	switch {
	case errors.Is(err, unix.ECONNREFUSED): // by the machine with the address
		return true
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES): // by the packet filter
		return false
	}
	n.t.Fatalf("connection to %s: got error %v, want one that tells whether packets pass", ip, err)
	return false
}

// resolves asks for the address 10.9.X.Y, and returns it.
func (n *testNode) resolves(c *dns.Conn, x, y int) string {
	n.t.Helper()
	ip := fmt.Sprintf("10.9.%d.%d", x, y)
	if got := answerTo(c, fmt.Sprintf("a-%d-%d.example.", x, y), 10*time.Second); got != ip {
		n.t.Fatalf("got %q, want %s", got, ip)
	}
	return ip
}

// A pod reaches an address as soon as it has the answer, and not before. Another pod does not.
func TestNodeSets(t *testing.T) {
	for name, args := range map[string][]string{
		"one process": {"-supervise=false"},
		"supervisor":  {"-nftset=inet/egress/agents4", "-sandbox=required"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.addPods()
			n.servesSets("")
			p := n.start(args...)
			c := n.dial("udp", nodeDNS)
			n.eventually("answer", p, func() bool { return answerTo(c, "a-0-1.example.", time.Second) == "10.9.0.1" })

			for y := range 100 {
				ip := fmt.Sprintf("10.9.1.%d", y+1)
				if y%10 == 0 && n.reaches(n.pod, ip) {
					t.Fatalf("%s before a query: got a connection, want none", ip)
				}
				if n.resolves(c, 1, y+1); !n.reaches(n.pod, ip) {
					t.Fatalf("%s after the answer: got no connection; log:\n%s\n%s", ip, p.log, n.nft("list table inet egress"))
				}
				if y%10 == 0 && n.reaches(n.more[0], ip) {
					t.Fatalf("%s: got a connection of another pod, want none", ip)
				}
			}

			// A set that is flushed, and one that is gone and made again.
			n.nft("flush set inet egress agents4")
			n.eventually("element that is written again", p, func() bool { return n.reaches(n.pod, n.resolves(c, 1, 1)) })
			n.nft("delete table inet egress")
			n.resolves(c, 1, 2)
			n.eventually("text about the set", p, func() bool {
				return strings.Contains(p.log.String(), `table="inet egress" name=agents4 error="the set does not exist"`)
			})
			n.nft(egress)
			n.eventually("set that is written again", p, func() bool { return n.reaches(n.pod, n.resolves(c, 1, 3)) })
		})
	}
}

// The supervisor writes to the sets of its flag alone, and a worker that is started again can write, too.
func TestNodeSetsSupervised(t *testing.T) {
	long(t)
	n := newTestNode(t)
	n.servesSets("nftset inet egress other4")
	n.nft("add set inet egress other4 { type ipv4_addr; flags timeout; }")
	p := n.start("-nftset=inet/egress/agents4", "-sandbox=required")
	c := n.dial("udp", nodeDNS)
	n.eventually("answer", p, func() bool { return answerTo(c, "a-0-1.example.", time.Second) == "10.9.0.1" })
	if !n.reaches(n.pod, "10.9.0.1") {
		t.Errorf("the set of the flag: got no connection; log:\n%s", p.log)
	}
	if got := n.nft("list set inet egress other4"); strings.Contains(got, "10.9.0.1") {
		t.Errorf("a set that the flag does not name: got\n%s", got)
	}
	const refused = `name=other4 error="the supervisor may not write to the set: name it in -nftset of seamark node"`
	if !strings.Contains(p.log.String(), refused) {
		t.Errorf("got no line with %s in\n%s", refused, p.log)
	}

	_ = unix.Kill(n.worker(p, 0), unix.SIGKILL)
	n.eventually("next worker", p, func() bool { return strings.Contains(p.log.String(), "Worker ended") })
	n.eventually("answer of the next worker", p, func() bool { return answerTo(c, "a-0-2.example.", time.Second) == "10.9.0.2" })
	if !n.reaches(n.pod, "10.9.0.2") {
		t.Errorf("after the worker was killed: got no connection; log:\n%s", p.log)
	}
	// The element of the worker before is renewed.
	n.resolves(c, 0, 1)
	if !n.reaches(n.pod, "10.9.0.1") {
		t.Errorf("an element of the worker before: got no connection; log:\n%s", p.log)
	}
}

// While the supervisor hangs, answers are sent without their addresses: the first ones after their time,
// which counts them, and the others at once, once the set counts as one that cannot be written.
func TestNodeSetsSupervisorHung(t *testing.T) {
	long(t)
	n := newTestNode(t)
	n.servesSets("")
	p := n.start("-nftset=inet/egress/agents4", "-sandbox=required")
	c := n.dial("udp", nodeDNS)
	n.eventually("answer", p, func() bool { return answerTo(c, "a-0-1.example.", time.Second) == "10.9.0.1" })

	n.stop(p, p.Process.Pid)
	continued := false
	defer func() {
		if !continued {
			_ = p.Process.Signal(unix.SIGCONT)
		}
	}()
	n.resolves(c, 0, 2)
	if n.reaches(n.pod, "10.9.0.2") {
		t.Error("an answer while the supervisor hangs: got a connection, want none")
	}
	if got := n.total(p, "seamark_nftset_late_replies_total"); got != 1 {
		t.Errorf("got %v late replies, want 1", got)
	}
	n.eventually("text about the supervisor", p, func() bool {
		return strings.Contains(p.log.String(), `name=agents4 error="the supervisor does not answer"`)
	})
	for y := range 20 {
		n.resolves(c, 0, y+3)
	}
	if got := n.total(p, "seamark_nftset_late_replies_total"); got != 1 {
		t.Errorf("after the text about the supervisor: got %v late replies, want 1", got)
	}

	continued = true
	if err := p.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	n.eventually("set that is written again", p, func() bool { return n.reaches(n.pod, n.resolves(c, 0, 30)) })
	if got := strings.Count(p.log.String(), "Set can be written again"); got != 1 {
		t.Errorf("got %d lines that the set can be written again, want 1; log:\n%s", got, p.log)
	}
}
