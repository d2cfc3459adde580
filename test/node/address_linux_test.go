package node

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// The node's cache answers queries of pods to the ClusterIPs and to its own address, over
// IPv4 and IPv6, without tracked connections. After SIGKILL the replica answers, on the
// same sockets, and a new process uses what is left. After SIGTERM nothing is left.
func TestNodeCapture(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
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
	client := dns.Client{Timeout: patience}
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

// An address that something removes comes back.
func TestNodeAddressRemoved(t *testing.T) {
	n := newTestNode(t)
	p := n.start("-syncinterval", "3600")
	for _, address := range []string{nodeDNS + "/32", cluster6 + "/128"} {
		ip, _, _ := strings.Cut(address, "/")
		name := n.interfaceOf(ip)
		n.ip("addr del " + address + " dev " + name)
		n.eventually("address "+ip, p, func() bool { return n.interfaceOf(ip) == name })
		// The address is listed a moment before the kernel delivers packets to it.
		n.eventually("answer at "+ip, p, func() bool { return answer(n.dial("udp", ip), time.Second) == byNode })
	}
	n.eventually("two warnings about removed addresses", p, func() bool {
		return strings.Count(p.log.String(), "Address was removed, added it again") == 2
	})
}

// With -skipteardown the addresses stay, but no rules: the replica answers. The addresses
// of a later process without the flag do not stay.
func TestNodeSkipTeardown(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
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
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
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
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
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

// A second process takes over the sockets of the first one (maxSurge of the DaemonSet): no
// query is lost, the end of the first process leaves the addresses and rules, and after
// the second one is killed the replica answers although the first is still there.
func TestNodeUpgrade(t *testing.T) {
	long(t)
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
				if got := answer(c, patience); got != byNode {
					t.Errorf("query %d to %s during the upgrade: got %s, want %s", asked, server, got, byNode)
					return
				}
			}
		})
	}
	second := n.start()
	n.eventually("end of the hand-over", first, func() bool { return strings.Contains(first.log.String(), "waiting for a signal") })
	n.eventually("one table that captures", first, func() bool { return len(n.capturing()) == 1 })
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

// The directive capture selects the capture. A change has no effect before the next start.
func TestNodeCaptureDirective(t *testing.T) {
	n := newTestNode(t)
	const block = `from.example:53 {
    bind __PILLAR__LOCAL__DNS__
    capture %s
    template IN A {
        answer "{{.Name}} 5 IN A 192.0.2.99"
    }
}
`
	n.args = n.files(fmt.Sprintf(block, "address"))[1:] // without -capture
	p := n.start()
	n.answered(n.dial("udp", clusterDNS), byNode)
	if got := n.interfaceOf(clusterDNS); got == "" {
		t.Errorf("capture address: got %s on no interface; log:\n%s", clusterDNS, p.log)
	}
	write(t, n.args[slices.Index(n.args, "-basecorefile")+1], fmt.Sprintf(block, "none"))
	n.eventually("warning about the change", p, func() bool { return strings.Contains(p.log.String(), "Changed directive has no effect") })
	n.answered(n.dial("udp", clusterDNS), byNode)
	n.end(p, syscall.SIGTERM)
	n.without(p, nodeDNS, clusterDNS, cluster6)
	p = n.startUnready()
	<-p.done
	if log := p.log.String(); !strings.Contains(log, "no interface of this machine has that address") {
		t.Errorf("capture none: got log\n%s\nwant an error about a missing address", log)
	}
}
