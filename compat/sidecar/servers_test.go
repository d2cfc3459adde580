package sidecar

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// A reply returns the messages that a server sends for one query.
type reply func(m *dns.Msg, network string) [][]byte

// listen starts a server on loopback, over UDP and TCP, that replies with r. It
// stops at the end of the test.
func listen(t *testing.T, r reply) (addr string) {
	t.Helper()
	var udp net.PacketConn
	var tcp net.Listener
	var err error
	for range 20 { // the TCP port may be in use
		if udp, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if tcp, err = net.Listen("tcp", udp.LocalAddr().String()); err == nil {
			break
		}
		udp.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	t.Cleanup(func() { udp.Close(); tcp.Close(); tasks.Wait() })
	tasks.Go(func() {
		packet := make([]byte, 4096)
		for {
			n, peer, err := udp.ReadFrom(packet)
			if err != nil {
				return
			}
			m := new(dns.Msg)
			if err := m.Unpack(packet[:n]); err != nil {
				t.Error(err)
				continue
			}
			for _, out := range r(m, "udp") {
				_, _ = udp.WriteTo(out, peer)
			}
		}
	})
	tasks.Go(func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			serveTCP(t, conn, r)
		}
	})
	return udp.LocalAddr().String()
}

func serveTCP(t *testing.T, conn net.Conn, r reply) {
	defer conn.Close()
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	packet := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, packet); err != nil {
		return
	}
	m := new(dns.Msg)
	if err := m.Unpack(packet); err != nil {
		t.Error(err)
		return
	}
	for _, out := range r(m, "tcp") {
		_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
	}
}

// pack returns a reply to m with records, modified by f unless f is nil.
func pack(m *dns.Msg, f func(*dns.Msg), records ...string) []byte {
	r := new(dns.Msg).SetReply(m)
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		r.Answer = append(r.Answer, rr)
	}
	if f != nil {
		f(r)
	}
	out, err := r.Pack()
	if err != nil {
		panic(err)
	}
	return out
}

// silence sends no reply.
func silence(*dns.Msg, string) [][]byte { return nil }

// always replies with records.
func always(records ...string) reply {
	return func(m *dns.Msg, _ string) [][]byte { return [][]byte{pack(m, nil, records...)} }
}

// A fakeDnsmasq replies with its counters.
type fakeDnsmasq struct {
	mu      sync.Mutex
	numbers map[string]string // by the label before .bind; "" means REFUSED
}

func (c *fakeDnsmasq) set(numbers map[string]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.numbers = map[string]string{}
	for name, n := range numbers {
		c.numbers[name] = strconv.FormatUint(n, 10)
	}
}

func (c *fakeDnsmasq) setText(name, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.numbers[name] = text
}

func (c *fakeDnsmasq) reply(m *dns.Msg, _ string) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := m.Question[0]
	text := c.numbers[dns.SplitDomainName(q.Name)[0]]
	if q.Qclass != dns.ClassCHAOS || q.Qtype != dns.TypeTXT || text == "" {
		return [][]byte{pack(m, func(r *dns.Msg) { r.Rcode = dns.RcodeRefused })}
	}
	return [][]byte{pack(m, nil, q.Name+" 0 CH TXT \""+text+"\"")}
}
