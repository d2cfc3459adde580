package cmd_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/test/bound"

	"github.com/miekg/dns"
)

// A floodUpstream answers names that begin with hot or other, and counts them. Names that
// begin with x get what kind says.
type floodUpstream struct {
	kind       string // nxdomain, wildcard, slow, silent
	hot, other atomic.Int64
}

func (u *floodUpstream) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	name := strings.ToLower(q.Question[0].Name)
	switch {
	case strings.HasPrefix(name, "hot"):
		u.hot.Add(1)
	case strings.HasPrefix(name, "other"):
		u.other.Add(1)
	case u.kind == "silent":
		return
	case u.kind == "slow":
		time.Sleep(50 * time.Millisecond)
		fallthrough
	case u.kind == "nxdomain":
		m.Rcode = dns.RcodeNameError
		soa, _ := dns.NewRR("flood.example. 300 SOA ns.flood.example. root.flood.example. 1 2 3 4 300")
		m.Ns = []dns.RR{soa}
		_ = w.WriteMsg(m)
		return
	}
	rr, _ := dns.NewRR(q.Question[0].Name + " 3600 A 192.0.2.1")
	m.Answer = []dns.RR{rr}
	_ = w.WriteMsg(m)
}

// Random names of one zone, more than the cache has entries, displace neither cached names
// nor names from other sources. make soak sends 100,000 of them, also from one client
// alone, and checks that memory does not grow with them.
func TestServeRandomNamesFlood(t *testing.T) {
	long(t)
	soak := os.Getenv("SOAK") != ""
	for kind, count := range map[string]int{"nxdomain": 12_000, "wildcard": 12_000, "slow": 4_000, "silent": 4_000} {
		t.Run(kind, func(t *testing.T) {
			if soak {
				count = 100_000
				randomNamesFlood(t, kind, count, 1)
			}
			randomNamesFlood(t, kind, count, 100)
		})
	}
}

func randomNamesFlood(t *testing.T, kind string, count, sources int) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	upstream := &floodUpstream{kind: kind}
	server := &dns.Server{PacketConn: conn, Handler: upstream}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = server.ActivateAndServe() })
	defer conn.Close()

	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(
		".:0 {\n bind 127.0.0.1\n hosts {\n  192.0.2.2 own.example.org\n  fallthrough\n }\n cache\n forward . %s {\n  max_fails 0\n }\n}\n", conn.LocalAddr()))
	p := serve(t, dir, "", "-conf", "Corefile")
	defer p.stop()

	const hotNames = 100
	answered := func(name string) bool {
		reply, err := ask("udp", p.ports[0], name, dns.TypeA)
		return err == nil && reply.Rcode == dns.RcodeSuccess && len(reply.Answer) == 1
	}
	checkKnown := func(after int) {
		for i := range hotNames {
			if name := fmt.Sprintf("hot%d.flood.example.", i); !answered(name) {
				t.Errorf("after %d names of the flood: %s A: got no answer, want one", after, name)
			}
		}
		if !answered("own.example.org.") {
			t.Errorf("after %d names of the flood: own.example.org. A: got no answer, want one", after)
		}
	}
	checkKnown(0)
	checkKnown(0)
	var clients []net.Conn
	for i := range sources {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 9, byte(i+1))}}
		c, err := d.Dial("udp", "127.0.0.1:"+p.ports[0])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	otherAnswered, others := 0, 0
	most := 0.0
	for i := range count {
		packet, err := new(dns.Msg).SetQuestion(fmt.Sprintf("x%d-%d.flood.example.", i, sources), dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clients[i%sources].Write(packet); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 { // wait until the server has read the queries
			if others++; answered(fmt.Sprintf("other%d.flood.example.", i)) {
				otherAnswered++
			}
		}
		if i%(count/20) == 0 {
			checkKnown(i + 1)
			most = max(most, residentMemory(t, p))
		}
	}
	checkKnown(count)
	t.Logf("%d clients: %d of %d other names of the upstream answered; at most %.1f MB of resident memory", sources, otherAnswered, others, most)
	n := upstream.hot.Load() // forward may repeat a query
	bound.Holds(t, n <= hotNames*11/10, "the upstream received %d queries for %d cached names, want about one each", n, hotNames)
	bound.Holds(t, otherAnswered >= others*9/10, "%d of %d other names of the upstream answered, want 9 of 10", otherAnswered, others)
	// 30 MB, and 2.7 KB for each of 16,384 waiting queries, twice until they are collected.
	const limit = 130.0
	bound.Holds(t, most <= limit, "%.1f MB of resident memory, want at most %.0f", most, limit)
}
