package forward

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
)

// BenchmarkForward measures a query from the client's packet to the reply, with an
// upstream that answers at once and one client for each goroutine.
func BenchmarkForward(b *testing.B) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			// The reply is the query with QR set, and has no records.
			buf[2] |= 0x80
			buf[11] = 0
			end := 12
			for buf[end] != 0 {
				end += int(buf[end]) + 1
			}
			_, _ = c.WriteTo(buf[:min(end+5, n)], from)
		}
	}()
	r := &harness{t: new(testing.T)}
	blk, err := setup(".:53 {\nforward . "+c.LocalAddr().String()+"\n}", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.serve(blk, nil)
	defer func() { r.lot.Close(b.Context()); r.start.Stop() }()
	var n atomic.Uint32
	packet := pack(query("aaaaaa.example.", mdns.TypeA))
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		c := &client{reply: make(chan []byte, 1)}
		lent, buf := make([]byte, 0, 4096), make([]byte, len(packet))
		for p.Next() {
			q := dns.NewQuery(c) // of which 1 KB are
			copy(buf, packet)
			for i, label := n.Add(1), buf[13:19]; i > 0; i /= 26 {
				label[0] = 'a' + byte(i%26)
				label = label[1:]
			}
			q.Reset(buf, dns.UDP, time.Now())
			if r.port.Serve(q, lent) != dns.Parked {
				b.Error("query to the upstream: got an answer at once, want it parked")
			}
			if reply := <-c.reply; len(reply) < 12 || reply[3]&15 != 0 {
				b.Errorf("got reply %x, want NOERROR", reply)
			}
		}
	})
}
