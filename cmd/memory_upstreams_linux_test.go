package cmd_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/memorygroup"
)

// A stallingUpstream is a DNS server over TCP at all loopback addresses. It announces a reply of the largest size
// to names that begin with stall, sends most of it, and no more. Others get an address.
type stallingUpstream struct {
	net.Listener
	running sync.WaitGroup
}

func newStallingUpstream(t *testing.T) (port string) {
	t.Helper()
	port = freeport.Reserve(t)
	l, err := net.Listen("tcp4", "0.0.0.0:"+port)
	if err != nil {
		t.Fatal(err)
	}
	u := &stallingUpstream{Listener: l}
	u.running.Go(u.accept)
	t.Cleanup(func() { l.Close(); u.running.Wait() })
	return port
}

func (u *stallingUpstream) accept() {
	for {
		conn, err := u.Accept()
		if err != nil {
			return
		}
		u.running.Go(func() { u.serve(conn) })
	}
}

func (u *stallingUpstream) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		packet := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, packet); err != nil {
			return
		}
		q := new(dns.Msg)
		if q.Unpack(packet) != nil || len(q.Question) != 1 {
			return
		}
		if strings.HasPrefix(strings.ToLower(q.Question[0].Name), "stall") {
			_, _ = conn.Write(append([]byte{0xFF, 0xFF}, make([]byte, 60_000)...))
			continue
		}
		m := new(dns.Msg).SetReply(q)
		a, _ := dns.NewRR(q.Question[0].Name + " 0 IN A 192.0.2.1")
		m.Answer = []dns.RR{a}
		reply, _ := m.Pack()
		if _, err := conn.Write(framed(reply)); err != nil {
			return
		}
	}
}

// A server of 64 MB has a hundred stub zones with four upstreams each, which send most of large replies and then
// nothing. The kernel does not kill it, own names are answered meanwhile, and then those of each zone.
func TestMemoryUpstreams(t *testing.T) {
	long(t)
	const zones, perZone = 100, 12
	port, pages := newStallingUpstream(t), "127.0.0.1:"+freeport.Reserve(t)
	corefile := ".:0 {\n bind 127.0.0.1\n prometheus " + pages + "\n hosts {\n  192.0.2.9 own.example\n  fallthrough\n }\n"
	for z := range zones {
		corefile += fmt.Sprintf(" forward z%d.example", z)
		for u := range 4 {
			corefile += fmt.Sprintf(" 127.1.%d.%d:%s", z, u+1, port)
		}
		corefile += " {\n  force_tcp\n  max_fails 0\n }\n"
	}
	g := memorygroup.New(t, 64<<20)
	p := startInGroup(t, g, buildServer(t), corefile+"}\n")
	metric := func(series string) (value float64) {
		page, err := probe("127.0.0.9", "http://"+pages+"/metrics")
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(page) {
			if rest, ok := strings.CutPrefix(line, series+" "); ok {
				_, _ = fmt.Sscan(rest, &value)
			}
		}
		return value
	}

	var stalled sync.WaitGroup
	for z := range zones {
		for i := range perZone {
			stalled.Go(func() {
				_, _ = ask("udp", p.ports[0], fmt.Sprintf("stall%d.z%d.example.", i, z), dns.TypeTXT)
			})
		}
	}
	ended := make(chan struct{})
	go func() { stalled.Wait(); close(ended) }()
	most := 0.0
	for own := 0; ; own++ {
		select {
		case <-ended:
		default:
			if reply, err := ask("udp", p.ports[0], "own.example.", dns.TypeA); err != nil || len(reply.Answer) != 1 {
				t.Fatalf("own name: got %v, error %v, want an address", reply, err)
			}
			most = max(most, metric(`seamark_memory_used_bytes{part="upstreams"}`))
			continue
		}
		t.Logf("%d answers from own data; upstreams had %.1f MB; %s", own, most/(1<<20), g)
		break
	}
	for z := range zones {
		if reply, err := ask("udp", p.ports[0], fmt.Sprintf("a.z%d.example.", z), dns.TypeA); err != nil || len(reply.Answer) != 1 {
			t.Errorf("zone %d: got %v, error %v, want an address", z, reply, err)
		}
	}
	if most == 0 {
		t.Error("got no memory of upstreams in the metrics")
	}
	survives(t, p, g)
}
