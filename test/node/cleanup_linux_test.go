package node

import (
	"strings"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/seamark/seamark/test/program"
)

// cleanup runs the command cleanup on the node.
func (n *testNode) cleanup(args ...string) (out string, code int) {
	c := program.Command(n.t, n.t.TempDir(), append([]string{"node", "cleanup"}, args...)...)
	n.do(func() {
		text, _ := c.CombinedOutput()
		out = string(text)
	})
	return out, c.ProcessState.ExitCode()
}

// oldRule adds a rule with a comment to the table raw, as iptables-nft does.
func (n *testNode) oldRule(comment string) {
	n.t.Helper()
	var err error
	n.do(func() {
		var c *nftables.Conn
		if c, err = nftables.New(); err != nil {
			return
		}
		table := c.AddTable(&nftables.Table{Name: "raw", Family: nftables.TableFamilyIPv4})
		chain := c.AddChain(&nftables.Chain{Name: "PREROUTING", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Counter{}}, UserData: append([]byte{0, byte(len(comment) + 1)}, comment+"\x00"...)})
		err = c.Flush()
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// oldRules returns the number of rules in the table raw.
func (n *testNode) oldRules() (count int) {
	n.t.Helper()
	n.do(func() {
		c, err := nftables.New()
		if err != nil {
			n.t.Error(err)
			return
		}
		table := &nftables.Table{Name: "raw", Family: nftables.TableFamilyIPv4}
		rules, err := c.GetRules(table, &nftables.Chain{Name: "PREROUTING", Table: table})
		if err != nil {
			n.t.Error(err)
		}
		count = len(rules)
	})
	return count
}

// cleanup removes the addresses after SIGKILL and the rules of node-cache, and nothing
// else; not while a process serves.
func TestNodeCleanup(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	n := newTestNode(t)
	n.oldRule("NodeLocal DNS Cache: skip conntrack")
	n.oldRule("another rule")
	n.ip("addr add 10.9.9.9/32 dev lo")
	p := n.start()
	if log := p.log.String(); !strings.Contains(log, "iptables rules of node-cache are on the node") {
		t.Errorf("got log\n%s\nwant a warning about rules of node-cache", log)
	}
	if out, code := n.cleanup(); code != 1 || !strings.Contains(out, "a process serves ") {
		t.Errorf("cleanup while a process serves: got %q and exit status %d, want an error", out, code)
	}
	if rules := n.oldRules(); rules != 2 {
		t.Errorf("rules after a refused cleanup: got %d, want 2", rules)
	}
	n.end(p, syscall.SIGKILL)
	if n.interfaceOf(nodeDNS) == "" {
		t.Fatalf("address %s after SIGKILL: got none, want it", nodeDNS)
	}
	out, code := n.cleanup()
	for _, want := range []string{"Removed address " + nodeDNS + "\n", "Removed address " + clusterDNS + "\n", "Removed address " + cluster6 + "\n", "of node-cache in table raw, chain PREROUTING\n"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("cleanup: got exit status %d and\n%s\nwant %q", code, out, want)
		}
	}
	for _, a := range []string{nodeDNS, clusterDNS, cluster6} {
		if name := n.interfaceOf(a); name != "" {
			t.Errorf("address %s after cleanup: got it on %s, want none", a, name)
		}
	}
	if n.interfaceOf("10.9.9.9") != "lo" || n.oldRules() != 1 {
		t.Errorf("after cleanup: got address 10.9.9.9 on %q and %d rules, want lo and 1", n.interfaceOf("10.9.9.9"), n.oldRules())
	}
	if out, code := n.cleanup(); code != 0 || !strings.HasPrefix(out, "Nothing to remove") {
		t.Errorf("second cleanup: got exit status %d and %q, want nothing to remove", code, out)
	}
}
