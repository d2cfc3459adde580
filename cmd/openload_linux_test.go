package cmd_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// A generator sends the queries of many clients over UDP, without waiting for replies. All
// clients share some sockets, so that one system call sends up to 64 queries: each query
// has the address of its client, 127.0.8.0/24, as its source, and the client's index as its
// ID. Each call uses another socket, so the ports of each client change.
type generator struct {
	sockets []int // file descriptors
	calls   int
	to      unix.RawSockaddrInet4
	clients []openClient
	batch   [64]unix.Mmsghdr
	n       int // messages of batch
}

// An openClient counts its queries and their replies of the code NOERROR.
type openClient struct {
	sent    float64
	got     atomic.Int64
	packet  []byte
	control []byte
	iov     unix.Iovec
	message unix.Mmsghdr
}

// newGenerator returns a generator for n clients. Each client sends queries for the
// name that the function returns for it.
func newGenerator(t *testing.T, at string, n int, name func(client int) string) *generator {
	t.Helper()
	loopback := func(_, _ string, c syscall.RawConn) error {
		var err error
		_ = c.Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "lo") })
		return err
	}
	config := net.ListenConfig{Control: loopback}
	g := &generator{clients: make([]openClient, n)}
	var receivers sync.WaitGroup
	t.Cleanup(receivers.Wait)
	for range 8 {
		c, err := config.ListenPacket(context.Background(), "udp4", ":0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conn := c.(*net.UDPConn)
		_ = conn.SetReadBuffer(4 << 20)
		raw, err := conn.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) { g.sockets = append(g.sockets, int(fd)) })
		receivers.Go(func() { g.receive(conn) })
	}
	to := netip.MustParseAddrPort(at)
	g.to = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: to.Addr().As4()}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&g.to.Port))[:], to.Port())
	for i := range g.clients {
		c := &g.clients[i]
		q := new(dns.Msg).SetQuestion(name(i), dns.TypeA)
		q.Id = uint16(i)
		packet, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		c.packet = packet
		c.control = unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte{127, 0, 8, byte(i + 1)}})
		c.iov.Base = &c.packet[0]
		c.iov.SetLen(len(c.packet))
		h := &c.message.Hdr
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&g.to)), unix.SizeofSockaddrInet4
		h.Iov, h.Control = &c.iov, &c.control[0]
		h.SetIovlen(1)
		h.SetControllen(len(c.control))
	}
	return g
}

// receive counts replies until the socket is closed.
func (g *generator) receive(conn *net.UDPConn) {
	for buf := make([]byte, 512); ; {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		if id := int(binary.BigEndian.Uint16(buf)); n > 12 && id < len(g.clients) && buf[3]&15 == dns.RcodeSuccess {
			g.clients[id].got.Add(1)
		}
	}
}

func (g *generator) send(client int) {
	g.clients[client].sent++
	g.batch[g.n] = g.clients[client].message
	if g.n++; g.n == len(g.batch) {
		g.flush()
	}
}

func (g *generator) flush() {
	fd := g.sockets[g.calls%len(g.sockets)]
	g.calls++
	for left := g.batch[:g.n]; len(left) > 0; {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&left[0])), uintptr(len(left)), 0, 0, 0)
		if errno != 0 {
			n = 1 // this one is lost
		}
		left = left[n:]
	}
	g.n = 0
}

// A traffic is what clients sent and what was answered of that.
type traffic struct {
	sent, got float64 // queries
	later     float64 // of got, those from a second after the first query
	rate      float64 // answers in a second, while they sent
}

func (l traffic) part() float64 { return l.got / max(l.sent, 1) }

// sum returns the counts of the clients from first to end.
func (g *generator) sum(first, end int) (l traffic) {
	for i := first; i < end; i++ {
		l.sent += g.clients[i].sent
		l.got += float64(g.clients[i].got.Load())
	}
	return l
}

// open sends rate queries in a second, and greedy ones from the last client alone. The
// others share rate; they are all clients if greedy is zero.
func (g *generator) open(rate, greedy float64, duration time.Duration) (others, last traffic) {
	n, end := len(g.clients), len(g.clients)
	if greedy > 0 {
		n--
	}
	others, last = g.sum(0, n), g.sum(n, end)
	start := time.Now()
	next := 0
	first, firstOfLast := others.got, last.got
	for done, elapsed := 0.0, 0.0; elapsed < duration.Seconds(); {
		if before := elapsed; before < 1 {
			if elapsed = time.Since(start).Seconds(); elapsed >= 1 {
				first, firstOfLast = g.sum(0, n).got, g.sum(n, end).got
			}
		}
		elapsed = time.Since(start).Seconds()
		if done >= (rate+greedy)*elapsed {
			time.Sleep(200 * time.Microsecond)
			continue
		}
		for range g.batch {
			// Both are distributed evenly: greedy of rate+greedy queries are the last client's.
			if done++; int(done*rate/(rate+greedy)) > int((done-1)*rate/(rate+greedy)) {
				g.send(next)
				next = (next + 1) % n
			} else {
				g.send(end - 1)
			}
		}
	}
	g.flush()
	others.rate = (g.sum(0, n).got - others.got) / time.Since(start).Seconds()
	last.rate = (g.sum(n, end).got - last.got) / time.Since(start).Seconds()
	time.Sleep(500 * time.Millisecond) // for replies on their way
	others.later, last.later = g.sum(0, n).got-first, g.sum(n, end).got-firstOfLast
	for l, now := range map[*traffic]traffic{&others: g.sum(0, n), &last: g.sum(n, end)} {
		l.sent, l.got = now.sent-l.sent, now.got-l.got
	}
	return others, last
}

// closed returns how many queries are answered in a second if ten of each client wait for
// their replies at any time.
func (g *generator) closed(duration time.Duration) float64 {
	before := g.sum(0, len(g.clients))
	lost, last, progress := 0.0, before.got, time.Now()
	start := time.Now()
	next := 0
	for time.Since(start) < duration {
		now := g.sum(0, len(g.clients))
		waiting := now.sent - before.sent - (now.got - before.got) - lost
		switch {
		case now.got > last:
			last, progress = now.got, time.Now()
		case time.Since(progress) > 200*time.Millisecond:
			lost += waiting
		}
		for ; waiting < float64(10*len(g.clients)); waiting++ {
			g.send(next)
			next = (next + 1) % len(g.clients)
		}
		g.flush()
		time.Sleep(100 * time.Microsecond)
	}
	return (g.sum(0, len(g.clients)).got - before.got) / time.Since(start).Seconds()
}

// peak returns the largest number of queries that are answered in a second: with a bounded
// number of waiting queries, or at any of several rates.
func (g *generator) peak() float64 {
	first := g.closed(4 * time.Second)
	most := first
	for _, factor := range []float64{0.9, 1.1, 1.3, 1.6, 2} {
		l, _ := g.open(factor*first, 0, 3*time.Second)
		most = max(most, l.rate)
	}
	return most
}
