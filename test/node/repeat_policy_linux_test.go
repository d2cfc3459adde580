package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// policyCluster has the namespaces of the pods: the first one's, and that of the others.
const policyCluster = `apiVersion: v1
kind: Namespace
metadata: {name: alpha}
---
apiVersion: v1
kind: Namespace
metadata: {name: beta}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: alpha}
status: {phase: Running, podIP: 10.0.1.2, podIPs: [{ip: 10.0.1.2}, {ip: "fd00:1::2"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: beta}
status: {phase: Running, podIP: 10.0.3.2, podIPs: [{ip: 10.0.3.2}, {ip: "fd00:3::2"}]}
`

const denyingMap = `---
apiVersion: v1
kind: ConfigMap
metadata: {name: names, namespace: alpha, labels: {seamark.io/dns: policy}}
data: {policy: deny start.example}
`

// rcodeTo returns the response code of a name, as text.
func (n *testNode) rcodeTo(c *dns.Conn, name string) string {
	n.t.Helper()
	m := new(dns.Msg).SetQuestion(name, dns.TypeA)
	reply, _, err := (&dns.Client{Timeout: time.Minute}).ExchangeWithConn(m, c)
	if err != nil {
		n.t.Fatalf("%s from %s: %v", name, c.RemoteAddr(), err)
	}
	return dns.RcodeToString[reply.Rcode]
}

// A right ends with the policy that gave it, also if the kernel repeats replies: after the first denied answer to a pod
// it gets no other one, by a policy that a reload adds, or that a ConfigMap changes. Other pods have their answers all
// the time.
func TestNodeRepeatPolicy(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		n.addPods()
		dir := t.TempDir()
		objects := func(text string) {
			file := filepath.Join(dir, "objects.yaml")
			write(t, file+".next", text)
			if err := os.Rename(file+".next", file); err != nil {
				t.Fatal(err)
			}
		}
		objects(policyCluster)
		open := strings.Replace(cached, "    loop\n", "    kubernetes cluster.local {\n        manifests "+dir+"\n        pods verified\n    }\n", 1)
		withPolicy := func(lines string) string {
			return strings.Replace(open, "    cache 30\n", "    policy {\n        group alpha {\n            namespaces alpha\n            "+lines+
				"\n        }\n        group others {\n            unknown\n        }\n        objects {\n            delegate * .\n            manifests "+dir+
				"\n        }\n    }\n    cache 30\n", 1)
		}
		n.args = n.files(open)
		base := n.args[slices.Index(n.args, "-basecorefile")+1]
		apply := func(p *nodeProcess, corefile string) {
			write(t, base, corefile)
			_ = p.Process.Signal(syscall.SIGHUP)
		}

		sockets := []*dns.Conn{n.dial("udp", clusterDNS), n.dial("udp", cluster6)}
		other := n.dialFrom(n.more[0], "udp", clusterDNS)
		p := n.startRepeating(append(sockets, other), capture)
		denied := func(what string) {
			t.Helper()
			for _, c := range sockets {
				n.eventually("denied answer, "+what, p, func() bool { return n.rcodeTo(c, "start.example.") == "NXDOMAIN" })
			}
			for i := range 200 {
				for _, c := range sockets {
					if got := n.rcodeTo(c, "start.example."); got != "NXDOMAIN" {
						t.Fatalf("%s: got %s after NXDOMAIN, want the same", what, got)
					}
				}
				if i%10 == 0 {
					if got := n.rcodeTo(other, "start.example."); got != "NOERROR" {
						t.Fatalf("%s, the other pod: got %s, want NOERROR", what, got)
					}
				}
			}
		}
		for i := range 3 {
			apply(p, withPolicy("deny start.example"))
			denied(fmt.Sprint("reload ", i))

			// A policy that allows the name, until a ConfigMap denies it.
			apply(p, withPolicy("deny none.example"))
			n.eventually("answer with another policy", p, func() bool { return n.rcodeTo(sockets[0], "start.example.") == "NOERROR" })
			before := n.total(p, repeatedReplies)
			n.allCounted(p)
			for range 20 {
				n.rcodeTo(sockets[0], "start.example.")
			}
			n.allCounted(p)
			if got := n.total(p, repeatedReplies) - before; i == 0 && got != 0 {
				t.Errorf("with policy: got %v repeated replies, want none", got)
			}
			objects(policyCluster + denyingMap)
			denied(fmt.Sprint("ConfigMap ", i))
			objects(policyCluster)

			apply(p, open)
			before = n.total(p, repeatedReplies)
			n.eventually("repeated replies again", p, func() bool {
				return n.rcodeTo(sockets[0], "start.example.") == "NOERROR" && n.total(p, repeatedReplies) > before
			})
		}
	})
}
