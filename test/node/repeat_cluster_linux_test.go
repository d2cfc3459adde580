package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// A changingCluster is a folder of manifests. Version n has the Service api with an address that
// says n, and the Services s1 to sN.
type changingCluster struct {
	t   *testing.T
	dir string
}

// numbered returns the address that says n.
func numbered(n int) string { return fmt.Sprintf("10.100.%d.%d", n>>8, n&255) }

// set replaces the objects by version n.
func (c *changingCluster) set(n int) {
	c.t.Helper()
	var text strings.Builder
	text.WriteString("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	service := func(name, address string) {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\n"+
			"spec: {clusterIP: %[2]s, clusterIPs: [%[2]s], ports: [{port: 80}]}\n", name, address)
	}
	service("api", numbered(n))
	for k := 1; k <= n; k++ {
		service(fmt.Sprintf("s%d", k), numbered(k))
	}
	file := filepath.Join(c.dir, "objects.yaml")
	write(c.t, file+".next", text.String())
	if err := os.Rename(file+".next", file); err != nil {
		c.t.Fatal(err)
	}
}

// askNumber returns the number in the address of a Service, 0 if the Service does not exist.
func askNumber(c *dns.Conn, service string) (n int, err error) {
	client := dns.Client{Timeout: time.Minute}
	m := new(dns.Msg).SetQuestion(service+".shop.svc.cluster.local.", dns.TypeA)
	reply, _, err := client.ExchangeWithConn(m, c)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: %w", service, err)
	case reply.Rcode == dns.RcodeNameError && len(reply.Answer) == 0:
		return 0, nil
	case reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 1:
		return 0, fmt.Errorf("%s: got %v, want one address or NXDOMAIN", service, reply)
	}
	ip := reply.Answer[0].(*dns.A).A.To4()
	return int(ip[2])<<8 | int(ip[3]), nil
}

// raise sets a number to a larger one.
func raise(of *atomic.Int64, to int64) {
	for old := of.Load(); to > old && !of.CompareAndSwap(old, to); old = of.Load() {
	}
}

// The kernel repeats answers of kubernetes, positive and negative, over both IP versions. While the
// objects change, no client gets an answer that is older than one that any client had got
// when it sent its query.
func TestNodeRepeatCluster(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		const changes = 30
		c := &changingCluster{t, t.TempDir()}
		c.set(0)
		n.args = n.files(strings.Replace(cached, "    loop\n", "    kubernetes cluster.local {\n        manifests "+c.dir+"\n    }\n", 1))
		p := n.startRepeating([]*dns.Conn{n.dial("udp", clusterDNS), n.dial("udp", cluster6)}, capture)
		first := n.total(p, repeatedReplies)

		var version, latest atomic.Int64 // the largest answers for api, and for the Services sN
		var done atomic.Bool
		var clients sync.WaitGroup
		for _, server := range []string{clusterDNS, cluster6, clusterDNS, cluster6} {
			conn := n.dial("udp", server)
			clients.Go(func() {
				ask := func(service string, atLeast int64) int64 {
					got, err := askNumber(conn, service)
					if err != nil {
						t.Error(err)
					} else if int64(got) < atLeast {
						t.Errorf("%s from %s: got version %d after %d", service, server, got, atLeast)
					}
					return int64(got)
				}
				for !done.Load() && !t.Failed() {
					before := version.Load()
					raise(&version, ask("api", before))
					k := latest.Load()
					if k > 0 {
						ask(fmt.Sprintf("s%d", k), k)
					}
					raise(&latest, ask(fmt.Sprintf("s%d", k+1), 0)) // mostly NXDOMAIN
				}
			})
		}
		for k := 1; k <= changes; k++ {
			before := n.total(p, repeatedReplies)
			n.eventually("repeated replies", p, func() bool { return n.total(p, repeatedReplies) > before+100 || t.Failed() })
			c.set(k)
			n.eventually("answers of the changed objects", p, func() bool {
				return version.Load() == int64(k) && latest.Load() == int64(k) || t.Failed()
			})
		}
		done.Store(true)
		clients.Wait()
		queries := n.allCounted(p)
		t.Logf("%s: %d changes, %v of %v queries answered by the kernel", capture, changes, n.total(p, repeatedReplies)-first, queries)
		n.end(p, syscall.SIGTERM)
	})
}
