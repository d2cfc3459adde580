package transport

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	mdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
)

// TestUDPAllocs: answering a query inline allocates nothing, for every size of a
// batch.
func TestUDPAllocs(t *testing.T) {
	for _, bind := range []string{"127.0.0.1", "::"} {
		withEachReader(t, func(t *testing.T, o Options) {
			s := serve(t, bind, o)
			c := dial(t, "udp", s.at("127.0.0.1"))
			_ = c.SetDeadline(time.Time{})
			packet, buf := pack(t, newQuery("a.in.", mdns.TypeA)), make([]byte, 512)
			allocs := testing.AllocsPerRun(200, func() {
				for range batchSize {
					if _, err := c.Write(packet); err != nil {
						t.Fatal(err)
					}
				}
				for range batchSize {
					if _, err := c.Read(buf); err != nil {
						t.Fatal(err)
					}
				}
			})
			if allocs != 0 {
				t.Errorf("%d queries allocate %v times, want 0", batchSize, allocs)
			}
		})
	}
}

// selfQuerier sends two copies of each query that it answers to its own server, until
// stop is set or end has passed, so its reader always has a packet to read. It
// uses RawSyscall as batch does, which does not wake the monitor thread.
type selfQuerier struct {
	fd   int
	stop atomic.Bool
	end  time.Time
}

func (h *selfQuerier) ServeDNS(q *dns.Query) dns.Verdict {
	if packet := q.Packet(); !h.stop.Load() && q.Start.Before(h.end) {
		for range 2 {
			_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(h.fd), uintptr(unsafe.Pointer(&packet[0])), uintptr(len(packet)))
		}
	}
	return dns.Done
}

// TestBatchYields: on a single processor, a UDP reader that always has a packet
// to read does not starve the TCP connections. The client is another process, so
// that the monitor thread of the server's process is asleep when the first query
// arrives.
func TestBatchYields(t *testing.T) {
	const child = "SEAMARK_TEST_ASK"
	if addr := os.Getenv(child); addr != "" {
		last := -1
		chaintest.Eventually(t, "the threads of the server's process sleep", func() bool {
			before := last
			last = contextSwitches(t, os.Getppid())
			time.Sleep(50 * time.Millisecond) // the monitor thread runs every 10 ms if it runs
			return last == before
		})
		c := dial(t, "udp", addr)
		if _, err := c.Write(pack(t, newQuery("a.endless.", mdns.TypeA))); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			wantA(t, ask(t, "tcp", addr, newQuery("a.in.", mdns.TypeA)), 1)
		}
		return
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := serve(t, "127.0.0.1", Options{Readers: 1})
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(s.Addr().Port()), Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	h := &selfQuerier{fd: fd, end: time.Now().Add(2 * patience)}
	mux, chain := s.mux(1), &dns.Chain{Zone: "endless."}
	chain.Add("test", h)
	if err := mux.Route("\x07endless\x00", chain); err != nil {
		t.Fatal(err)
	}
	s.Port().Swap(mux)
	cmd := exec.Command(os.Args[0], "-test.run=^TestBatchYields$", "-test.v")
	cmd.Env = append(os.Environ(), child+"="+s.at("127.0.0.1"))
	out, err := cmd.CombinedOutput()
	h.stop.Store(true)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.Stop() // after this no goroutine writes to fd
}

// contextSwitches returns how often the threads of a process have gone to sleep.
func contextSwitches(t *testing.T, pid int) (n int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range threads {
		status, _ := os.ReadFile(name) // the thread may have ended
		_, rest, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(rest, "\n")
		switches, _ := strconv.Atoi(strings.TrimSpace(line))
		n += switches
	}
	return n
}

// TestSendAllFailures: sendAll skips a message that cannot be sent and sends the
// others.
func TestSendAllFailures(t *testing.T) {
	to, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	from, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := from.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	l := &Listener{counts: newCounters(new(metrics.Registry))}
	failed := l.counts.sendUDP
	const n = 5
	var messages [n]unix.Mmsghdr
	var iov [n]unix.Iovec
	var names [n]sockaddr
	var bytes [n]byte
	good := to.LocalAddr().(*net.UDPAddr).AddrPort()
	for i := range n {
		bytes[i] = byte(i)
		iov[i].Base = &bytes[i]
		iov[i].SetLen(1)
		h := &messages[i].Hdr
		addr := good
		if i%2 == 0 {
			addr = netip.AddrPortFrom(good.Addr(), 0) // With port 0, sendmmsg fails.
		}
		h.Name, h.Namelen = &names[i][0], names[i].put(addr, false)
		h.Iov = &iov[i]
		h.SetIovlen(1)
	}
	if err := raw.Control(func(fd uintptr) { l.sendAll(fd, messages[:]) }); err != nil {
		t.Fatal(err)
	}
	if failed.Value() != 3 {
		t.Errorf("%d send errors are counted, want 3", failed.Value())
	}
	buf := make([]byte, 10)
	_ = to.SetDeadline(time.Now().Add(patience))
	for _, want := range []byte{1, 3} {
		if k, err := to.Read(buf); err != nil || k != 1 || buf[0] != want {
			t.Errorf("got %v %v, want %d", buf[:k], err, want)
		}
	}
	from.Close()
}

func TestSockaddr(t *testing.T) {
	for _, tc := range []struct {
		in string
		v6 bool
	}{
		{"192.0.2.1:53", false}, {"192.0.2.1:65535", true}, {"[2001:db8::1]:1", true}, {"[fe80::1%3]:5353", true},
	} {
		var s sockaddr
		ap := netip.MustParseAddrPort(tc.in)
		size := s.put(ap, tc.v6)
		if got := s.addrPort(); got != ap {
			t.Errorf("put(%s): addrPort: got %s, want %[1]s", ap, got)
		}
		if want := map[bool]uint32{false: unix.SizeofSockaddrInet4, true: unix.SizeofSockaddrInet6}[tc.v6]; size != want {
			t.Errorf("%s: size %d, want %d", ap, size, want)
		}
	}
}

// TestControlMessages compares control messages with those of package unix.
func TestControlMessages(t *testing.T) {
	addr4, addr6 := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")
	local := netip.MustParseAddr("fe80::9%7")
	info4 := unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: addr4.As4()})
	for _, tc := range []struct {
		name      string
		got, want []byte
	}{
		{"IPv4", controlMessage(addr4, 7, false), info4},
		{"mapped", controlMessage(addr4, 7, true), unix.PktInfo6(&unix.Inet6Pktinfo{Addr: addr4.As16()})},
		{"IPv6", controlMessage(addr6, 7, true), unix.PktInfo6(&unix.Inet6Pktinfo{Addr: addr6.As16()})},
		{"link-local", controlMessage(local, 7, true), unix.PktInfo6(&unix.Inet6Pktinfo{Addr: local.As16(), Ifindex: 7})},
		{"unknown", controlMessage(netip.IPv6Unspecified(), 0, true), nil},
	} {
		if string(tc.got) != string(tc.want) {
			t.Errorf("%s: got % x, want % x", tc.name, tc.got, tc.want)
		}
		if len(tc.want) == 0 {
			continue
		}
		if addr, _, size := replyInfo(tc.got); size == 0 || addr.WithZone("") != map[string]netip.Addr{"IPv4": addr4, "mapped": addr4, "IPv6": addr6, "link-local": local}[tc.name].WithZone("") {
			t.Errorf("%s: replyInfo: got address %s and size %d, want the address of the message", tc.name, addr, size)
		}
	}
	request := unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: 3, Spec_dst: addr4.As4(), Addr: [4]byte{192, 0, 2, 255}})
	if addr, index, size := replyInfo(request); addr != addr4 || index != 3 || size != unix.CmsgLen(unix.SizeofInet4Pktinfo) || string(request[:unix.CmsgLen(8)]) != string(info4[:unix.CmsgLen(8)]) {
		t.Errorf("replyInfo: got %s, interface %d, size %d, message % x; want %s, 3, %d, % x", addr, index, size, request, addr4, unix.CmsgLen(unix.SizeofInet4Pktinfo), info4)
	}
	if _, _, size := replyInfo(nil); size > 0 {
		t.Errorf("replyInfo(nil): got size %d, want 0", size)
	}
	if unsafe.Sizeof(unix.Cmsghdr{}) != unix.SizeofCmsghdr || controlSize != unix.CmsgSpace(unix.SizeofInet6Pktinfo) {
		t.Errorf("a header has %d bytes and controlSize is %d, want %d and %d", unsafe.Sizeof(unix.Cmsghdr{}), controlSize, unix.SizeofCmsghdr, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	}
}
