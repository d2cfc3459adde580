package node

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/node/tcx"
)

// When a rule of the node drops the queries over one IP version, the replica answers them, and the
// node's cache answers the others all the time, although the kernel repeats its replies. After the
// rule is gone, the node's cache answers all.
func TestNodePolicyOfFamily(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		n.cachedByNode()
		p := n.startRepeating([]*dns.Conn{n.dial("udp", clusterDNS), n.dial("udp", cluster6)}, capture)
		for _, c := range []struct{ family, server, other string }{{"IPv6", cluster6, clusterDNS}, {"IPv4", clusterDNS, cluster6}} {
			socket := n.dial("udp", c.server)
			n.answered(socket, byNode)
			l := n.load(c.other)
			n.drop(tcx.AliasFor(netip.MustParseAddr(c.server), 0).String())
			dropped := time.Now()
			n.eventually("answer of the replica", p, func() bool { return answer(socket, 100*time.Millisecond) == byReplica })
			n.t.Logf("%s: the replica answers %v after the rule", c.family, time.Since(dropped).Round(time.Millisecond))
			n.eventually("warning", p, func() bool {
				return strings.Contains(p.log.String(), "to the node? interface=pod family="+c.family)
			})
			n.answered(socket, byReplica)
			n.eventually("paused interface", p, func() bool { return strings.Contains(n.metrics(p), "\nseamark_node_capture_paused_interfaces 1\n") })
			n.flush("policy")
			n.eventually("answer of the node", p, func() bool { return answer(socket, time.Second) == byNode })
			n.answered(socket, byNode)
			n.eventually("end of the pause", p, func() bool { return strings.Contains(n.metrics(p), "\nseamark_node_capture_paused_interfaces 0\n") })
			lost := l.end()
			if lost != 0 || l.replica.Load() != 0 || l.refused.Load() != 0 || l.node.Load() == 0 {
				n.t.Errorf("%s dropped: got for the other queries %v, %d lost, want all answered by the node; log:\n%s", c.family, l, lost, p.log)
			}
		}
		if got := strings.Count(p.log.String(), "No replies pass to an interface"); got != 2 {
			n.t.Errorf("warnings: got %d, want 2; log:\n%s", got, p.log)
		}
	})
}
