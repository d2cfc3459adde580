package tcx

import (
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/test/chaintest"
)

// filterNames returns the names of the BPF filters of an interface, in their order.
func filterNames(conn *netlink.Conn, index int) string {
	var names []string
	for _, f := range filters(conn, index) {
		names = append(names, f.name)
	}
	return strings.Join(names, " ")
}

// probedClsact skips the test if the kernel has no BPF filters of tc. The probe leaves nothing
// on lo.
func probedClsact(t *testing.T, conn *netlink.Conn) {
	t.Helper()
	support, err := ProbeClsact()
	if support == Unsupported {
		t.Skipf("BPF programs cannot be attached by clsact: %v", err)
	}
	if support != Supported || err != nil {
		t.Fatalf("probe: got %v, error %v, want Supported", support, err)
	}
	if with, err := clsacts(conn); err != nil || with[loInterface] {
		t.Errorf("lo after the probe: got clsact %v, error %v, want none", with[loInterface], err)
	}
}

// By clsact the programs come first at both sides of interfaces. Filters that another process
// removes come back, those of ended instances are removed, and an interface with a filter of
// another process is not captured.
func TestFilters(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	conn, err := openLinks(0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	probedClsact(t, conn)
	ip(t, veths(pods(t), 4))
	own, left, foreign := interfaceIndex(t, "pod0"), interfaceIndex(t, "pod1"), interfaceIndex(t, "pod2")
	p, err := loadUnused()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	add := func(index int, parent uint32, name string) *filter {
		f, err := attachFilter(conn, index, parent, p.query, name)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	add(left, clsactIngress, filterPrefix+"query")
	add(left, clsactEgress, filterPrefix+"reply")
	other := add(foreign, clsactEgress, "policy")

	c, log := openWith(t, Options{Clsact: true})
	chaintest.Eventually(t, "three captured interfaces", c.captures(3))
	for index, want := range map[int]string{own: "seamark_query seamark_reply", left: "seamark_query seamark_reply", foreign: "policy"} {
		if got := filterNames(conn, index); got != want {
			t.Errorf("filters of interface %d: got %q, want %q", index, got, want)
		}
	}
	if !strings.Contains(log.String(), `it has the BPF filter \"policy\" of tc of another process`) {
		t.Errorf("log: got\n%s\nwant the name of the filter", log)
	}

	// Another instance, such as during an upgrade, comes first and leaves this one alone.
	second, _ := openWith(t, Options{Clsact: true})
	chaintest.Eventually(t, "three captured interfaces", second.captures(3))
	if got, want := filterNames(conn, own), "seamark_query seamark_query seamark_reply seamark_reply"; got != want {
		t.Errorf("filters of two instances: got %q, want %q", got, want)
	}
	if number, _ := id(second.program.query); filters(conn, own)[0].program != number {
		t.Errorf("first filter: got program %d, want %d of the second instance", filters(conn, own)[0].program, number)
	}
	if removed, err := RemoveLeftovers(); removed != 0 || err != nil {
		t.Errorf("leftovers of running instances: removed %d, error %v, want none", removed, err)
	}
	second.Close()

	if _, err := conn.Execute(trafficControl(unix.RTM_DELQDISC, netlink.Acknowledge, filter{index: own, handle: clsactHandle, parent: clsactParent}, nil)); err != nil {
		t.Fatal(err)
	}
	ip(t, "link set pod0 address 02:00:00:00:00:11\n") // a message about a change
	chaintest.Eventually(t, "filters after the removal of the qdisc", func() bool { return filterNames(conn, own) == "seamark_query seamark_reply" })
	if !strings.Contains(log.String(), "adding them again") {
		t.Errorf("log: got\n%s\nwant a warning about removed filters", log)
	}

	c.Close()
	for index, want := range map[int]string{own: "", left: "", foreign: "policy"} {
		if got := filterNames(conn, index); got != want {
			t.Errorf("filters of interface %d after the end: got %q, want %q", index, got, want)
		}
	}
	add(own, clsactIngress, filterPrefix+"query")
	add(own, clsactEgress, filterPrefix+"reply")
	if removed, err := RemoveLeftovers(); removed != 2 || err != nil || filterNames(conn, own) != "" {
		t.Errorf("leftovers: removed %d, error %v, want 2; now %q", removed, err, filterNames(conn, own))
	}
	if err := other.remove(conn); err != nil {
		t.Error(err)
	}
	if err := other.remove(conn); err != nil {
		t.Errorf("second removal of a filter: got error %v, want none", err)
	}
}

// Where an interface has the qdisc clsact, the probe adds none to lo: the kernel would drop
// packets to it.
func TestProbeClsactPresent(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	conn, err := openLinks(0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	probedClsact(t, conn)
	ip(t, veths(pods(t), 1))
	index := interfaceIndex(t, "pod0")
	if err := addClsact(conn, index); err != nil {
		t.Fatal(err)
	}
	events, err := openLinks(unix.RTMGRP_TC)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	if support, err := ProbeClsact(); support != Supported || err != nil {
		t.Fatalf("probe: got %v, error %v, want Supported", support, err)
	}
	_ = events.SetReadDeadline(time.Now().Add(time.Minute))
	for removed := false; !removed; {
		messages, err := events.Receive()
		if err != nil {
			t.Fatalf("messages about the removed filter: got error %v", err)
		}
		for _, m := range messages {
			if f, _ := parseControl(m); f.index != index {
				t.Errorf("probe: got message %v about interface %d, want changes of interface %d only", m.Header.Type, f.index, index)
			}
			removed = removed || m.Header.Type == unix.RTM_DELTFILTER
		}
	}
}

// An interface with the qdisc ingress is not captured, because that has no side for replies.
func TestFiltersIngress(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	conn, err := openLinks(0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	probedClsact(t, conn)
	ip(t, veths(pods(t), 1))
	index := interfaceIndex(t, "pod0")
	if _, err := conn.Execute(trafficControl(unix.RTM_NEWQDISC, netlink.Acknowledge|netlink.Create|netlink.Excl, filter{index: index, handle: clsactHandle, parent: clsactParent},
		func(e *netlink.AttributeEncoder) { e.String(tcaKind, "ingress") })); err != nil {
		t.Fatal(err)
	}
	c, log := openWith(t, Options{Clsact: true})
	chaintest.Eventually(t, "reason in the log", func() bool { return strings.Contains(log.String(), "the qdisc ingress of another program") })
	if got := c.Counters().Interfaces; got != 0 {
		t.Errorf("captured interfaces: got %d, want none", got)
	}
}

// The time for 200 interfaces that are there at the start, in both ways.
func TestInterfacesMany(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	t.Parallel() // in a process of its own
	if !inNamespace(t) {
		return
	}
	ip(t, veths(pods(t), 200))
	for _, clsact := range []bool{false, true} {
		if support, err := ProbeClsact(); clsact && support == Unsupported {
			t.Logf("not by clsact: %v", err)
			continue
		}
		start := time.Now()
		c, _ := openWith(t, Options{Clsact: clsact})
		chaintest.Eventually(t, "200 captured interfaces", c.captures(200))
		took := time.Since(start)
		c.Close()
		t.Logf("200 interfaces, clsact %v: captured within %v of the start, released in %v", clsact, took.Round(time.Millisecond), (time.Since(start) - took).Round(time.Millisecond))
	}
}
