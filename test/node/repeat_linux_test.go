package node

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// cached is a template of node-cache's kind: everything comes from the replica, through the
// cache.
const cached = `.:53 {
    errors
    cache 30
    loop
    bind __PILLAR__LOCAL__DNS__ __PILLAR__DNS__SERVER__
    forward . __PILLAR__CLUSTER__DNS__ {
        force_tcp
    }
    prometheus 127.0.0.1:9253
}
`

// cachedByNode makes the node's cache answer what answer asks for, in a way that the kernel
// repeats.
func (n *testNode) cachedByNode() {
	n.t.Helper()
	n.answers("127.0.0.1", byNode)
	n.args = n.files(strings.Replace(cached, "forward .", "forward from.example 127.0.0.1\n    forward .", 1))
}

// withoutOffload makes the kernel compute the checksums of packets that leave an interface,
// so that the receiver verifies them.
func (n namespace) withoutOffload(name string) {
	n.t.Helper()
	n.do(func() {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			n.t.Error(err)
			return
		}
		defer unix.Close(s)
		const stxcsum = 0x17 // ETHTOOL_STXCSUM
		value := [2]uint32{stxcsum, 0}
		var request struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}
		copy(request.name[:], name)
		request.data = unsafe.Pointer(&value)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			n.t.Errorf("turning off the checksum offload of %s: %v", name, errno)
		}
	})
}

// total returns the sum of a metric's series.
func (n *testNode) total(p *nodeProcess, name string) (sum float64) {
	n.t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(n.metrics(p), -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			n.t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// ask sends a query for name, whose reply the kernel may repeat, and returns the record.
func (n *testNode) ask(c *dns.Conn, name string) *dns.A {
	n.t.Helper()
	client := dns.Client{Timeout: patience}
	m := new(dns.Msg).SetQuestion(name, dns.TypeA)
	m.RecursionDesired = true
	reply, _, err := client.ExchangeWithConn(m, c)
	if err != nil {
		n.t.Fatalf("%s from %s: %v", name, c.RemoteAddr(), err)
	}
	if len(reply.Answer) != 1 || reply.Rcode != dns.RcodeSuccess || !reply.Response || !reply.RecursionDesired || reply.Question[0] != m.Question[0] {
		n.t.Fatalf("%s from %s: got %v, want one address", name, c.RemoteAddr(), reply)
	}
	return reply.Answer[0].(*dns.A)
}

const repeatedReplies = "seamark_node_repeated_replies_total"

// startRepeating starts the command and waits until the kernel repeats replies of both
// families.
func (n *testNode) startRepeating(sockets []*dns.Conn, args ...string) *nodeProcess {
	n.t.Helper()
	p := n.startUnready(args...)
	for _, c := range sockets {
		n.eventually("repeated replies", p, func() bool {
			before := n.total(p, repeatedReplies)
			for range 20 {
				n.ask(c, "start.example.")
			}
			time.Sleep(2 * times.Count) // the interval of the attempts: the metrics follow within it
			return n.total(p, repeatedReplies) > before
		})
	}
	return p
}

// allCounted returns the number of queries, once everything is counted, which is after
// times.Count.
func (n *testNode) allCounted(p *nodeProcess) float64 {
	n.t.Helper()
	before := -1.0
	n.eventually("constant number of queries", p, func() bool {
		now := n.total(p, "coredns_dns_requests_total")
		same := now == before
		if before = now; !same {
			time.Sleep(10 * times.Count) // the interval of the readings that are compared
		}
		return same
	})
	return before
}

// The kernel repeats replies of the cache: the right ones, with right checksums, and each is
// counted.
func TestNodeRepeat(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		n.args = n.files(cached)
		sockets := []*dns.Conn{n.dial("udp", clusterDNS), n.dial("udp", cluster6)}
		p := n.startRepeating(sockets, capture)
		for i, prepare := range []func(){
			func() {},
			func() { n.withoutOffload("pod") },      // of replies
			func() { n.pod.withoutOffload("eth0") }, // of queries
		} {
			prepare()
			const rounds, names = 40, 5
			queries, repeated, hits := n.allCounted(p), n.total(p, repeatedReplies), n.total(p, "coredns_cache_hits_total")
			for range rounds {
				for name := range names {
					for _, c := range sockets {
						rr := n.ask(c, fmt.Sprintf("name%d.example.", name))
						if rr.A.String() != byReplica || rr.Hdr.Ttl > 5 || rr.Hdr.Name != fmt.Sprintf("name%d.example.", name) {
							t.Errorf("answer: got %v, want %s with a TTL of at most 5", rr, byReplica)
						}
					}
				}
			}
			const sent = rounds * names * 2
			if got := n.allCounted(p) - queries; got != sent {
				t.Errorf("variant %d: counted queries: got %v, want %d", i, got, sent)
			}
			repeats := n.total(p, repeatedReplies) - repeated
			if repeats < sent/4 || repeats > sent {
				t.Errorf("variant %d: repeated replies: got %v of %d, want most", i, repeats, sent)
			}
			if got := n.total(p, "coredns_cache_hits_total") - hits; got < repeats {
				t.Errorf("variant %d: cache hits: got %v, want at least %v", i, got, repeats)
			}
		}
		// The replies of the kernel are not counted as those of the server.
		if got, want := n.total(p, "coredns_dns_responses_total"), n.total(p, "coredns_dns_requests_total"); got != want {
			t.Errorf("replies: got %v, want %v, the number of queries", got, want)
		}
	})
}

// A changed Corefile applies at once: no reply of the old one is repeated after the first of
// the new one.
func TestNodeRepeatReload(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		n.args = n.files(cached)
		c := n.dial("udp", clusterDNS)
		p := n.startRepeating([]*dns.Conn{c}, capture)
		base := n.args[slices.Index(n.args, "-basecorefile")+1]
		for i := range 3 {
			want := fmt.Sprintf("192.0.2.%d", 100+i)
			write(t, base, strings.Replace(cached, "    cache 30\n", "    cache 30\n    template IN A {\n        answer \"{{.Name}} 5 IN A "+want+"\"\n    }\n", 1))
			_ = p.Process.Signal(syscall.SIGHUP)
			n.eventually("answer of the new Corefile", p, func() bool { return n.ask(c, "start.example.").A.String() == want })
			for range 200 {
				if got := n.ask(c, "start.example.").A.String(); got != want {
					t.Fatalf("after the first answer of the new Corefile: got %s, want %s", got, want)
				}
			}
			write(t, base, cached)
			_ = p.Process.Signal(syscall.SIGHUP)
			n.eventually("answer of the replica", p, func() bool { return n.ask(c, "start.example.").A.String() == byReplica })
			before := n.total(p, repeatedReplies)
			n.eventually("repeated replies again", p, func() bool {
				n.ask(c, "start.example.")
				return n.total(p, repeatedReplies) > before
			})
		}
	})
}

// With the flag, and with directives that have to see each query, the kernel repeats nothing.
func TestNodeRepeatNothing(t *testing.T) {
	long(t)
	for name, change := range map[string]func(n *testNode) string{
		"flag": func(*testNode) string { return "-repeat-replies=false" },
		"log": func(n *testNode) string {
			write(n.t, n.args[slices.Index(n.args, "-basecorefile")+1], strings.Replace(cached, "errors", "log", 1))
			return "-repeat-replies"
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.args = n.files(cached)
			p := n.startUnready("-capture=tcx", change(n))
			c := n.dial("udp", clusterDNS)
			n.eventually("captured queries", p, func() bool {
				for range 20 {
					n.ask(c, "start.example.")
				}
				return n.total(p, "coredns_dns_requests_total") > 100
			})

			n.allCounted(p)
			if got := n.total(p, repeatedReplies); got != 0 {
				t.Errorf("repeated replies: got %v, want none", got)
			}
		})
	}
}
