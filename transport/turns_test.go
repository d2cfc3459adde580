package transport

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// slow answers as inline does, and counts.
type slow struct {
	duration time.Duration // of CPU time for each query
	served   atomic.Int64
}

func (h *slow) ServeDNS(q *dns.Query) dns.Verdict {
	for start := time.Now(); time.Since(start) < h.duration; {
	}
	h.served.Add(1)
	return inline(1).ServeDNS(q)
}

// serveSlow starts a server with the zone slow. alone.
func serveSlow(t *testing.T, duration time.Duration, o Options) (*server, *slow) {
	t.Helper()
	s := serve(t, "127.0.0.1", o)
	h := &slow{duration: duration}
	mux := dns.NewMux(s.lot, func(*dns.Query, any) {})
	c := &dns.Chain{Zone: "slow."}
	c.Add("test", h)
	if err := mux.Route("\x04slow\x00", c); err != nil {
		t.Fatal(err)
	}
	s.Port().Swap(mux)
	return s, h
}

func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A client with a hundred connections sends queries over each as fast as it can. Clients
// with one connection, and clients that open one for each query, get their answers: in
// the time of thirty of them, the first client gets at most a hundred thousand.
func TestTCPFairTurns(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	const others, queries, mostGreedy = 20, 30, 100_000
	s, h := serveSlow(t, 10*time.Microsecond, Options{})
	at := s.at("127.0.0.1")
	packet := pack(t, newQuery("a.slow.", mdns.TypeA))
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)

	var greedy, polite sync.WaitGroup
	defer greedy.Wait()
	for range 100 {
		c := dialFrom(t, "127.0.6.1", at)
		defer c.Close()
		greedy.Go(func() { _, _ = io.Copy(io.Discard, c) })
		greedy.Go(func() {
			var many []byte
			for range 100 {
				many = append(many, framed...)
			}
			for {
				if _, err := c.Write(many); err != nil {
					return
				}
			}
		})
	}
	chaintest.Eventually(t, "the greedy client gets answers", func() bool { return h.served.Load() > 100 })
	before := h.served.Load()
	for i := range others {
		from := fmt.Sprintf("127.0.6.%d", i+2)
		persistent := i%2 == 0
		polite.Go(func() {
			var c net.Conn
			for n := range queries {
				if c == nil {
					d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
					var err error
					if c, err = d.Dial("tcp", at); err != nil {
						t.Errorf("client %s, query %d: %v", from, n, err)
						return
					}
				}
				_ = c.SetDeadline(time.Now().Add(patience))
				reply := make([]byte, 512)
				_, err := c.Write(framed)
				if err == nil {
					_, err = io.ReadAtLeast(c, reply, 2+len(packet))
				}
				if err != nil {
					t.Errorf("client %s, query %d: got no reply: %v", from, n, err)
				}
				if !persistent || err != nil || n == queries-1 {
					c.Close()
					c = nil
				}
				if err != nil {
					return
				}
			}
		})
	}
	polite.Wait()
	if got := h.served.Load() - before - others*queries; got > mostGreedy {
		t.Errorf("a client with 100 connections got %d answers while %d others got %d each, want at most %d", got, others, queries, mostGreedy)
	} else {
		t.Logf("a client with 100 connections got %d answers while %d others got %d each", got, others, queries)
	}
}
