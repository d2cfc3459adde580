package node

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// tableWith is the table of egress with another set.
func tableWith(set string) string {
	return "table inet egress\ndelete table inet egress\n" +
		strings.Replace(egress, "set agents4 { type ipv4_addr . ipv4_addr; flags timeout; size 4096; }", set, 1)
}

// tableOfIP replaces the table by one of the family ip.
var tableOfIP = strings.NewReplacer("\ntable inet egress {", "\ntable ip egress {", "icmpx", "icmp").Replace(
	tableWith("set agents4 { type ipv4_addr . ipv4_addr; flags timeout; }"))

// rule is the one of the table that names the set. A set with another type cannot have it.
const rule = "ip saddr . ip daddr @agents4 accept"

// A set that cannot be written keeps no answer back. It is reported once, however many answers there are, and counted;
// no packet passes that the set does not have; and the set is written again once it is one that can be.
func TestNodeSetsProblems(t *testing.T) {
	long(t)
	for name, args := range map[string][]string{
		"one process": {"-supervise=false"},
		"supervisor":  {"-nftset=inet/egress/agents4", "-sandbox=required"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.servesSets("")
			p := n.start(args...)
			c := n.dial("udp", nodeDNS)
			n.eventually("answer", p, func() bool { return answerTo(c, "a-0-1.example.", time.Second) == "10.9.0.1" })

			for x, problem := range []struct{ what, commands, logged string }{
				{"type of a port", strings.Replace(tableWith("set agents4 { type inet_service; flags timeout; }"), rule, "", 1), "the set is not one of addresses"},
				{"address and port", strings.Replace(tableWith("set agents4 { type ipv4_addr . inet_service; flags timeout; }"), rule, "", 1), "the set is not one of addresses"},
				{"without a timeout", tableWith("set agents4 { type ipv4_addr . ipv4_addr; }"), "the set has no flag timeout"},
				{"ranges", tableWith("set agents4 { type ipv4_addr . ipv4_addr; flags timeout, interval; }"), "the set has the flag interval"},
				{"map", strings.Replace(tableWith("map agents4 { type ipv4_addr : verdict; flags timeout; }"), rule, "", 1), "is a map"},
				{"table of another family", tableOfIP, "the set does not exist"},
				{"flush ruleset", "flush ruleset", "the set does not exist"},
			} {
				before, failed := strings.Count(p.log.String(), problem.logged), n.failures(p)
				n.nft(problem.commands)
				n.eventually("text about the set, "+problem.what, p, func() bool { return strings.Count(p.log.String(), problem.logged) > before })
				for y := range 20 {
					ip := n.resolves(c, x+10, y+1)
					if y == 0 && problem.what != "flush ruleset" && n.reaches(n.pod, ip) {
						t.Errorf("%s: got a connection, want none", problem.what)
					}
				}
				if got := n.failures(p) - failed; got < 20 {
					t.Errorf("%s: got %v failed addresses, want at least 20", problem.what, got)
				}
				if got := strings.Count(p.log.String(), problem.logged) - before; got != 1 {
					t.Errorf("%s: got %d lines with %q, want 1; log:\n%s", problem.what, got, problem.logged, p.log)
				}

				again := strings.Count(p.log.String(), "Set can be written again")
				n.nft("table ip egress\ndelete table ip egress\n" + tableWith("set agents4 { type ipv4_addr . ipv4_addr; flags timeout; size 4096; }"))
				n.eventually("set that is written again, "+problem.what, p, func() bool { return n.reaches(n.pod, n.resolves(c, x+10, 30)) })
				if got := strings.Count(p.log.String(), "Set can be written again") - again; got != 1 {
					t.Errorf("%s: got %d lines that the set can be written again, want 1; log:\n%s", problem.what, got, p.log)
				}
			}

			// A set of the other family has no address of this one, which is no error: it may have those of AAAA records.
			failed := n.failures(p)
			n.nft(strings.Replace(tableWith("set agents4 { type ipv6_addr . ipv6_addr; flags timeout; }"), rule, "", 1))
			n.eventually("set of the other family", p, func() bool { return !n.reaches(n.pod, n.resolves(c, 20, 1)) })
			if got := n.failures(p) - failed; got > 1 { // one that was on its way as the set changed
				t.Errorf("a set of the other family: got %v failed addresses, want none", got)
			}
		})
	}
}

// A set that is full has the addresses that came first. They are renewed and their packets pass, others do not, and
// all answers are sent. One pod that fills the set takes nothing from another that has its addresses in it.
func TestNodeSetsFull(t *testing.T) {
	long(t)
	n := newTestNode(t)
	n.addPods()
	n.servesSets("")
	n.nft(tableWith("set agents4 { type ipv4_addr . ipv4_addr; flags timeout; size 8; }"))
	p := n.start("-nftset=inet/egress/agents4", "-sandbox=required")
	other, c := n.dialFrom(n.more[0], "udp", nodeDNS), n.dial("udp", nodeDNS)
	n.eventually("answer", p, func() bool { return answerTo(other, "a-0-1.example.", time.Second) == "10.9.0.1" })
	if !n.reaches(n.more[0], "10.9.0.1") {
		t.Fatalf("the other pod: got no connection; log:\n%s", p.log)
	}

	for y := range 100 {
		n.resolves(c, 1, y+1)
	}
	if !n.reaches(n.pod, "10.9.1.1") || n.reaches(n.pod, "10.9.1.100") {
		t.Errorf("got connections %v and %v, want one to the first address alone\n%s",
			n.reaches(n.pod, "10.9.1.1"), n.reaches(n.pod, "10.9.1.100"), n.nft("list set inet egress agents4"))
	}
	if !n.reaches(n.more[0], n.resolves(other, 0, 1)) {
		t.Errorf("the other pod, with a set that another one has filled: got no connection; log:\n%s", p.log)
	}

	const full = `name=agents4 error="the set is full`
	n.eventually("text about the set", p, func() bool { return strings.Contains(p.log.String(), full) })
	if got := strings.Count(p.log.String(), full); got != 1 {
		t.Errorf("got %d lines that the set is full, want 1; log:\n%s", got, p.log)
	}
	if got := n.failures(p); got < 90 {
		t.Errorf("got %v failed addresses, want at least 90", got)
	}

	// With room, the next answer has its address in the set.
	n.nft(tableWith("set agents4 { type ipv4_addr . ipv4_addr; flags timeout; size 4096; }"))
	n.eventually("address in the larger set", p, func() bool { return n.reaches(n.pod, n.resolves(c, 1, 100)) })
}

// failures returns the number of addresses that could not be added to the set.
func (n *testNode) failures(p *nodeProcess) float64 {
	n.t.Helper()
	return n.series(p, `seamark_nftset_elements_total{set="inet egress agents4",result="failed"}`)
}

// series returns the value of one series.
func (n *testNode) series(p *nodeProcess, name string) (value float64) {
	n.t.Helper()
	text := n.metrics(p)
	_, after, found := strings.Cut(text, "\n"+name+" ")
	if !found {
		n.t.Fatalf("no series %s in\n%s", name, text)
	}
	if _, err := fmt.Sscan(after, &value); err != nil {
		n.t.Fatalf("%s: %v", name, err)
	}
	return value
}
