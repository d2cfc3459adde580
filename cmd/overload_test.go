package cmd_test

import (
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// Queries for an upstream that never replies take no place from queries for other
// upstreams, not even from answers to the same client.
func TestServeUnreachableUpstreamFlood(t *testing.T) {
	long(t)
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	healthy, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	upstream := &dns.Server{PacketConn: healthy, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		rr, _ := dns.NewRR(q.Question[0].Name + " 60 A 192.0.2.1")
		m.Answer = []dns.RR{rr}
		_ = w.WriteMsg(m)
	})}
	var upstreams sync.WaitGroup
	upstreams.Go(func() { _ = upstream.ActivateAndServe() })
	defer upstreams.Wait()
	defer healthy.Close()

	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(`.:0 {
    bind 127.0.0.1
    forward dead.example %s {
        max_fails 0
    }
    forward . %s
}
`, silent.LocalAddr(), healthy.LocalAddr()))
	p := serve(t, dir, "", "-conf", "Corefile")
	defer p.stop()

	// More queries for the silent upstream than the server lets wait, and all of them
	// within the five seconds for which they wait.
	flood, err := net.Dial("udp", "127.0.0.1:"+p.ports[0])
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	const rounds = 100
	for i := range rounds {
		for j := range 100 {
			packet, err := new(dns.Msg).SetQuestion(fmt.Sprintf("q%d-%d.dead.example.", i, j), dns.TypeA).Pack()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := flood.Write(packet); err != nil {
				t.Fatal(err)
			}
		}
		name := fmt.Sprintf("www%d.example.org.", i)
		reply, err := ask("udp", p.ports[0], name, dns.TypeA)
		if err != nil || reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 1 {
			t.Fatalf("after %d queries for a silent upstream: %s A from another upstream: got %v, %v, want one record", 100*(i+1), name, reply, err)
		}
	}
}
