package cmd_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/memorygroup"
	"github.com/seamark/seamark/test/race"
)

// serverBinary builds the server's program in bin, where Go finds it again.
var serverBinary = sync.OnceValues(func() (string, error) {
	binary, err := filepath.Abs("../bin/test-seamark")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", binary, "./cmd/seamark")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building seamark: %w: %s", err, text)
	}
	return binary, nil
})

// buildServer returns the path of the server's program: the test's own is larger. The test is skipped with
// the race detector, which the program has not.
func buildServer(t *testing.T) string {
	t.Helper()
	race.Skip(t)
	binary, err := serverBinary()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

func startInGroup(t *testing.T, g *memorygroup.Group, binary, corefile string) *process {
	t.Helper()
	return startInGroupAt(t, g, binary, t.TempDir(), corefile)
}

// startInGroupAt starts a server in a directory.
func startInGroupAt(t *testing.T, g *memorygroup.Group, binary, dir, corefile string) *process {
	t.Helper()
	write(t, filepath.Join(dir, "Corefile"), corefile)
	c := exec.CommandContext(t.Context(), binary, "-conf", "Corefile")
	c.Dir = dir
	g.Add(c)
	return start(t, c, os.Stderr, "")
}

// survives checks that a server answers from its own data and that the kernel has killed no
// process of its group.
func survives(t *testing.T, p *process, g *memorygroup.Group) {
	t.Helper()
	t.Log(g)
	if n := g.Kills(); n > 0 {
		t.Fatalf("the kernel killed %d processes: %s", n, g)
	}
	reply, err := ask("udp", p.ports[0], "own.example.", dns.TypeA)
	if err != nil || len(reply.Answer) != 1 {
		t.Fatalf("own.example. A: got %v, error %v, want an address", reply, err)
	}
}

// ownName is the part of a Corefile with the name that survives asks for.
const ownName = " bind 127.0.0.1\n hosts {\n  192.0.2.1 own.example\n  fallthrough\n }\n"

// Answers of 60 KB for names of a client's own fill the cache's part of the memory, and no more.
func TestCacheMemoryOfLargeAnswers(t *testing.T) {
	long(t)
	binary, upstream := buildServer(t), largeAnswers(t)
	for _, limit := range []int{64 << 20, 170 << 20} {
		t.Run(fmt.Sprint(limit>>20), func(t *testing.T) {
			g := memorygroup.New(t, limit)
			p := startInGroup(t, g, binary, ".:0 {\n"+ownName+" cache\n forward . "+upstream+"\n}\n")
			c := &dns.Client{Net: "tcp", Timeout: 10 * time.Second}
			conn, err := c.Dial("127.0.0.1:" + p.ports[0])
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(5 * time.Minute))
			for i := range 3000 {
				q := new(dns.Msg).SetQuestion(fmt.Sprintf("n%d.large.example.", i), dns.TypeTXT)
				if err := conn.WriteMsg(q); err != nil {
					t.Fatalf("query %d: %v; %s", i, err, g)
				}
				var h dns.Header
				if _, err := conn.ReadMsgHeader(&h); err != nil || h.Id != q.Id || h.Ancount != 228 {
					t.Fatalf("query %d: got %+v, error %v, want 228 records; %s", i, h, err, g)
				}
			}
			survives(t, p, g)
			p.stop()
		})
	}
}

// largeAnswers runs an upstream server with TXT records of 60 KB for every name.
func largeAnswers(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// The names of the records are pointers to the question: their bytes are the same for every name.
	whole := new(dns.Msg).SetQuestion("large.example.", dns.TypeTXT)
	whole.Compress = true
	for i := range 228 {
		whole.Answer = append(whole.Answer, &dns.TXT{
			Hdr: dns.RR_Header{Name: "large.example.", Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 3600},
			Txt: []string{fmt.Sprintf("%0250d", i)},
		})
	}
	packed, err := whole.Pack()
	if err != nil {
		t.Fatal(err)
	}
	records := packed[12+len("\x05large\x07example\x00")+4:]

	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Truncated = w.RemoteAddr().Network() == "udp"
		packet, err := m.Pack()
		if err == nil && !m.Truncated {
			binary.BigEndian.PutUint16(packet[6:], uint16(len(whole.Answer)))
			packet = append(packet, records...)
		}
		_, _ = w.Write(packet)
	})
	for _, s := range []*dns.Server{{Listener: l, Handler: handler}, {PacketConn: udp, Handler: handler}} {
		var served sync.WaitGroup
		served.Go(func() { _ = s.ActivateAndServe() })
		t.Cleanup(func() { _ = s.Shutdown(); _ = l.Close(); _ = udp.Close(); served.Wait() })
	}
	return l.Addr().String()
}

// A hostilePrimary serves the zone big.example. with a size that it can change.
type hostilePrimary struct {
	net.Listener
	served sync.WaitGroup

	mu     sync.Mutex
	serial uint32
	bytes  int // of the next transfer
	ixfr   bool
}

func newHostilePrimary(t *testing.T) *hostilePrimary {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &hostilePrimary{Listener: l, serial: 1}
	p.served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.served.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); p.served.Wait() })
	return p
}

func (p *hostilePrimary) set(serial uint32, bytes int, ixfr bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serial, p.bytes, p.ixfr = serial, bytes, ixfr
}

func (p *hostilePrimary) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	for {
		var length [2]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return
		}
		packet := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(c, packet); err != nil {
			return
		}
		q := new(dns.Msg)
		if q.Unpack(packet) != nil || p.reply(c, q) != nil {
			return
		}
	}
}

// reply sends the SOA record, or the zone in messages of about 16 KB.
func (p *hostilePrimary) reply(c net.Conn, q *dns.Msg) error {
	p.mu.Lock()
	serial, bytes, ixfr := p.serial, p.bytes, p.ixfr
	p.mu.Unlock()
	soa := func(serial uint32) dns.RR {
		return &dns.SOA{
			Hdr: dns.RR_Header{Name: "big.example.", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 60},
			Ns:  ".", Mbox: ".", Serial: serial, Refresh: 1, Retry: 1, Expire: 86400,
		}
	}

	sent := 0
	send := func(rrs ...dns.RR) error {
		m := new(dns.Msg).SetReply(q)
		m.Answer = rrs
		packet, err := m.Pack()
		if err != nil {
			return err
		}
		sent += len(packet)
		_, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...))
		return err
	}

	switch q.Question[0].Qtype {
	case dns.TypeSOA:
		return send(soa(serial))
	case dns.TypeIXFR:
		if !ixfr {
			return send(soa(serial))
		}
		if err := send(soa(serial), soa(serial-1), soa(serial)); err != nil {
			return err
		}
	default:
		if err := send(soa(serial)); err != nil {
			return err
		}
	}

	text := []string{strings.Repeat("x", 200)}
	for n := 0; sent < bytes; {
		var rrs []dns.RR
		for range 64 {
			name := fmt.Sprintf("n%d-%d.big.example.", serial, n)
			rrs = append(rrs, &dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60}, Txt: text})
			n++
		}
		if err := send(rrs...); err != nil {
			return err
		}
	}
	return send(soa(serial))
}

// A primary that sends an AXFR of 117 MB or an IXFR of 60 MB is refused with the reason. The old
// version is served, and so it is after a restart, from its file. A file that is too large is
// ignored.
func TestSecondaryMemoryOfHostilePrimary(t *testing.T) {
	long(t)
	binary, primary := buildServer(t), newHostilePrimary(t)
	corefile := func(file string) string {
		return ".:0 {\n errors\n" + ownName + " secondary big.example {\n  transfer from " +
			primary.Addr().String() + "\n  file " + file + "\n }\n}\n"
	}
	serves := func(p *process, serial uint32) func() bool {
		return func() bool {
			reply, err := ask("udp", p.ports[0], "big.example.", dns.TypeSOA)
			return err == nil && len(reply.Answer) == 1 && reply.Answer[0].(*dns.SOA).Serial == serial
		}
	}

	// A server without a limit saves a version that is too large for the others.
	primary.set(9, 117<<20, false)
	large := filepath.Join(t.TempDir(), "big.zone")
	p := startInGroup(t, memorygroup.New(t, 4<<30), binary, corefile(large))
	chaintest.Eventually(t, "the large version", serves(p, 9))
	p.stop()

	for _, limit := range []int{64 << 20, 170 << 20} {
		t.Run(fmt.Sprint(limit>>20), func(t *testing.T) {
			g, file := memorygroup.New(t, limit), filepath.Join(t.TempDir(), "big.zone")
			primary.set(1, 100<<10, false)
			p := startInGroup(t, g, binary, corefile(file))
			chaintest.Eventually(t, "the first version", serves(p, 1))

			for i, ixfr := range []bool{false, true} {
				primary.set(uint32(2+i), 117<<20-i*(57<<20), ixfr)
				p.until("no memory for more transfers")
				if !serves(p, 1)() {
					t.Errorf("IXFR %t: the old version is not served", ixfr)
				}
				survives(t, p, g)
				primary.set(1, 100<<10, false)
				p.stop()
				p = startInGroup(t, g, binary, corefile(file))
				chaintest.Eventually(t, "the version of the file", serves(p, 1))
			}
			p.stop()

			primary.set(9, 117<<20, false)
			p = startInGroup(t, g, binary, corefile(large))
			p.until(": Ignored file")
			p.until("no memory for more transfers")
			survives(t, p, g)
			p.stop()
		})
	}
}
