package tcx

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

var (
	cluster4 = netip.MustParseAddr("10.96.0.10")
	cluster6 = netip.MustParseAddr("fd00:96::10")
	alias4   = AliasFor(cluster4, 0)
	alias6   = AliasFor(cluster6, 0)
	pod4     = netip.MustParseAddr("10.0.1.2")
	pod6     = netip.MustParseAddr("fd00:1::2")
)

// ownMAC is the address of the interface in the tests, lo.
var ownMAC = [6]byte{2, 0, 0, 0, 0, 1}

// A bench runs the programs on frames of the interface lo, in a namespace of its own in
// which a server listens at the aliases.
type bench struct {
	*program
	t     testing.TB
	state *state
}

// isolate moves the test into a network namespace of its own, for its thread, which ends
// with it.
func isolate(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("network namespaces may not be made: %v", err)
	}
}

func newBench(t testing.TB) *bench {
	t.Helper()
	return newTimedBench(t, Times{})
}

func newTimedBench(t testing.TB, times Times) *bench {
	t.Helper()
	isolate(t)
	addAddresses(t, alias4, alias6)
	for _, a := range []netip.Addr{alias4, alias6} {
		c, err := net.ListenPacket("udp", netip.AddrPortFrom(a, 53).String())
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", netip.AddrPortFrom(a, 53).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.Close()
			l.Close()
		})
	}
	p, err := load([]Pair{{cluster4, alias4}, {cluster6, alias6}}, 53, times)
	if err != nil {
		if s, why := loadSupport(err); s == Unsupported {
			t.Skipf("BPF programs may not be loaded: %v", why)
		}
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	b := &bench{p, t, p.state(3)}
	if err := p.slots.Put(uint32(loInterface), uint32(3)); err != nil {
		t.Fatal(err)
	}
	b.state.reset(native(ownMAC8()))
	p.page.Stamp()
	p.open(true)
	return b
}

// run returns what a program makes of a frame.
func (b *bench) run(p *ebpf.Program, in []byte) []byte {
	b.t.Helper()
	out := make([]byte, len(in)+64)
	o := ebpf.RunOptions{Data: in, DataOut: out}
	verdict, err := p.Run(&o)
	if err != nil {
		b.t.Fatalf("running a program on %x: %v", in, err)
	}
	if int32(verdict) != -1 {
		b.t.Fatalf("verdict for %x: got %d, want -1: every packet is passed on", in, int32(verdict))
	}
	return o.DataOut
}

func (b *bench) same(what string, in, got, want []byte) {
	b.t.Helper()
	if !bytes.Equal(got, want) {
		b.t.Errorf("%s:\n  in %x\n got %x\nwant %x", what, in, got, want)
	}
}

var query = []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04from\x07example\x00\x00\x01\x00\x01")

func ports(a, b netip.Addr, from uint16) (source, target netip.AddrPort) {
	return netip.AddrPortFrom(a, from), netip.AddrPortFrom(b, 53)
}

// Queries over both families and protocols get the alias, with right checksums.
func TestQueries(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		name    string
		frame   frame
		pod     netip.Addr
		cluster netip.Addr
		alias   netip.Addr
	}{
		{"UDP over IPv4", frame{}, pod4, cluster4, alias4},
		{"UDP over IPv4 without a checksum", frame{withoutChecksum: true}, pod4, cluster4, alias4},
		{"UDP over IPv6", frame{}, pod6, cluster6, alias6},
		{"TCP over IPv4", frame{tcp: true, flags: 2}, pod4, cluster4, alias4},
		{"TCP over IPv6", frame{tcp: true, flags: 2}, pod6, cluster6, alias6},
		{"TCP with ECN", frame{tcp: true, flags: 0xc2}, pod4, cluster4, alias4},
		{"with a trailer", frame{trailer: []byte{1, 2, 3}}, pod4, cluster4, alias4},
	} {
		f := c.frame
		f.to, f.payload = ownMAC, query
		f.source, f.target = ports(c.pod, c.cluster, 40000)
		in := f.bytes()
		f.target = netip.AddrPortFrom(c.alias, 53)
		b.same(c.name, in, b.run(b.query, in), f.bytes())
	}
}

// Replies get the cluster's address, also in fragments.
func TestReplies(t *testing.T) {
	b := newBench(t)
	long := bytes.Repeat([]byte("0123456789abcdef"), 60)
	for _, c := range []struct {
		name  string
		frame frame
		six   bool
	}{
		{"UDP over IPv4", frame{}, false},
		{"UDP over IPv4 without a checksum", frame{withoutChecksum: true}, false},
		{"TCP over IPv4", frame{tcp: true, flags: 0x12}, false},
		{"first fragment over IPv4", frame{fragment: 0x2000, payload: long}, false},
		{"later fragment over IPv4", frame{fragment: 0x2000 | 100, payload: long}, false},
		{"last fragment over IPv4", frame{fragment: 200, payload: []byte{1}}, false},
		{"UDP over IPv6", frame{}, true},
		{"TCP over IPv6", frame{tcp: true, flags: 0x18, payload: long}, true},
		{"first fragment over IPv6", frame{fragmented: true, fragment: 1, payload: long}, true},
		{"later fragment over IPv6", frame{fragmented: true, fragment: 800 | 1, payload: long}, true},
		{"last fragment over IPv6", frame{fragmented: true, fragment: 1600, payload: []byte{1}}, true},
	} {
		f, pod, cluster, alias := c.frame, pod4, cluster4, alias4
		if c.six {
			pod, cluster, alias = pod6, cluster6, alias6
		}
		f.source, f.target = netip.AddrPortFrom(alias, 53), netip.AddrPortFrom(pod, 40000)
		in := f.bytes()
		f.source = netip.AddrPortFrom(cluster, 53)
		b.same(c.name, in, b.run(b.reply, in), f.bytes())
	}
}

// What is not a query to the cluster's address, or has an unusual form, does not change.
func TestUnchanged(t *testing.T) {
	b := newBench(t)
	other := netip.MustParseAddr("10.96.0.11")
	for _, c := range []struct {
		name     string
		frame    frame
		pod, dst netip.Addr
		port     uint16
	}{
		{"another address", frame{}, pod4, other, 53},
		{"another port", frame{}, pod4, cluster4, 54},
		{"another port over IPv6", frame{}, pod6, cluster6, 54},
		{"another protocol", frame{protocol: 132}, pod4, cluster4, 53},
		{"another machine's frame", frame{to: [6]byte{2, 0, 0, 0, 0, 2}}, pod4, cluster4, 53},
		{"first fragment", frame{fragment: 0x2000}, pod4, cluster4, 53},
		{"later fragment", frame{fragment: 3, payload: append([]byte{156, 64, 0, 53}, query...)}, pod4, cluster4, 53},
		{"fragment over IPv6", frame{fragmented: true, fragment: 1}, pod6, cluster6, 53},
		{"IP options", frame{options: []byte{0x94, 4, 0, 0}}, pod4, cluster4, 53},
		{"segment of another server's connection", frame{tcp: true, flags: 0x10}, pod4, cluster4, 53},
		{"segment of another server's connection over IPv6", frame{tcp: true, flags: 0x18}, pod6, cluster6, 53},
		{"too short", frame{payload: []byte{1}}, pod4, cluster4, 53},
	} {
		f := c.frame
		if f.to == [6]byte{} {
			f.to = ownMAC
		}
		if f.payload == nil {
			f.payload = query
		}
		f.source, f.target = netip.AddrPortFrom(c.pod, 40000), netip.AddrPortFrom(c.dst, c.port)
		in := f.bytes()
		b.same(c.name, in, b.run(b.query, in), in)
		b.same(c.name+", as a reply", in, b.run(b.reply, in), in)
	}
	if got := b.state.queries.Load(); got != 0 {
		t.Errorf("counted queries: got %d, want 0", got)
	}
}

// A query frame of a test, and the same with the alias.
func (b *bench) query4() (in, captured []byte) {
	f := frame{to: ownMAC, payload: query}
	f.source, f.target = ports(pod4, cluster4, 40000)
	in = f.bytes()
	f.target = netip.AddrPortFrom(alias4, 53)
	return in, f.bytes()
}

// Queries are captured while the gate is open, the worker is alive, a socket receives them
// and replies pass.
func TestGates(t *testing.T) {
	b := newBench(t)
	in, rewritten := b.query4()
	captured := func(what string, want bool) {
		t.Helper()
		expect := in
		if want {
			expect = rewritten
		}
		b.same(what, in, b.run(b.query, in), expect)
	}
	captured("at the start", true)
	captured("again", true)
	if q, p := b.state.queries.Load(), b.state.families[family4].pending.Load(); q != 2 || p == 0 {
		t.Errorf("after two queries: got %d queries, pending since %d, want 2, pending", q, p)
	}
	b.open(false)
	captured("closed gate", false)
	b.open(true)
	b.page.page.stamp.Store(uint64(monotonic() - 1600e6))
	captured("stale stamp", false)
	b.page.page.stamp.Store(0)
	captured("no stamp", false)
	b.page.Stamp()
	b.state.families[family4].pending.Store(uint64(monotonic() - 1100e6))
	captured("no reply within a second", false)
	if got := b.page.page.silent.Load(); got != 1 {
		t.Errorf("queries without replies: got %d, want 1", got)
	}
	b.state.families[family4].pending.Store(uint64(monotonic() - 31e9))
	captured("no reply, long ago", true)
	b.state.families[family4].paused.Store(1)
	captured("paused", false)
	b.state.families[family4].probe.Store(1)
	captured("the probe", true)
	captured("after the probe", false)
	reply := frame{payload: query, source: netip.AddrPortFrom(alias4, 53), target: netip.AddrPortFrom(pod4, 40000)}
	b.run(b.reply, reply.bytes())
	captured("after a reply", true)
	if got := b.page.Counters(); got.Queries != 5 || got.Replies != 1 {
		t.Errorf("counters: got %+v, want 5 queries and 1 reply", got)
	}
	if err := b.slots.Delete(uint32(loInterface)); err != nil {
		t.Fatal(err)
	}
	captured("an interface that is not selected", false)
}

// The programs use the times that they were loaded with.
func TestTimes(t *testing.T) {
	b := newTimedBench(t, Times{Stale: 10 * time.Hour, Silence: 20 * time.Hour, Forget: 30 * time.Hour})
	in, rewritten := b.query4()
	ago := func(d time.Duration) uint64 { return uint64(monotonic() - int64(d)) }
	for _, c := range []struct {
		stamp, pending time.Duration // since then
		captured       bool
	}{
		{9 * time.Hour, 19 * time.Hour, true},
		{11 * time.Hour, 19 * time.Hour, false},
		{0, 21 * time.Hour, false},
		{0, 29 * time.Hour, false},
		{0, 31 * time.Hour, true},
	} {
		b.page.page.stamp.Store(ago(c.stamp))
		b.state.families[family4].pending.Store(ago(c.pending))
		want := in
		if c.captured {
			want = rewritten
		}
		b.same(fmt.Sprintf("stamp %v ago, query without a reply %v ago", c.stamp, c.pending), in, b.run(b.query, in), want)
	}
}

// An address family is paused alone, and only its own replies end that.
func TestGatesOfFamilies(t *testing.T) {
	b := newBench(t)
	sides := [families]struct{ pod, cluster, alias netip.Addr }{{pod4, cluster4, alias4}, {pod6, cluster6, alias6}}
	captured := func(what string, want ...bool) {
		t.Helper()
		for family, s := range sides {
			f := frame{to: ownMAC, payload: query}
			f.source, f.target = ports(s.pod, s.cluster, 40000)
			in := f.bytes()
			if want[family] {
				f.target = netip.AddrPortFrom(s.alias, 53)
			}
			b.same(what+", "+familyNames[family], in, b.run(b.query, in), f.bytes())
		}
	}
	reply := func(family int) {
		s := sides[family]
		f := frame{payload: query, source: netip.AddrPortFrom(s.alias, 53), target: netip.AddrPortFrom(s.pod, 40000)}
		b.run(b.program.reply, f.bytes())
	}
	for family := range sides {
		f, want := &b.state.families[family], []bool{true, true}
		captured("at the start", want...)
		f.pending.Store(uint64(monotonic() - 1100e6))
		want[family] = false
		captured("no reply within a second", want...)
		reply(1 - family)
		captured("after a reply of the other family", want...)
		f.paused.Store(1)
		captured("paused", want...)
		reply(1 - family)
		captured("paused, after a reply of the other family", want...)
		f.probe.Store(1)
		want[family] = true
		captured("the probe", want...)
		want[family] = false
		captured("after the probe", want...)
		reply(family)
	}
	captured("at the end", true, true)
	if got := b.page.page.silent.Load(); got != 4 {
		t.Errorf("queries without replies: got %d, want 4", got)
	}
}

// Without a socket at the alias nothing is captured.
func TestNoSocket(t *testing.T) {
	b := newBench(t)
	in, _ := b.query4()
	other, err := load([]Pair{{cluster4, netip.MustParseAddr("169.254.20.12")}}, 53, Times{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	mac := b.state.mac.Load()
	if err := other.slots.Put(uint32(loInterface), uint32(0)); err != nil {
		t.Fatal(err)
	}
	other.state(0).reset(mac)
	other.page.Stamp()
	other.open(true)
	b.same("no socket", in, b.run(other.query, in), in)
}

// Whatever the bytes of a frame are, programs change nothing but the address and the
// checksums, and never the length.
func FuzzFrames(f *testing.F) {
	for _, pod := range []netip.Addr{pod4, pod6} {
		cluster, alias := cluster4, alias4
		if pod.Is6() {
			cluster, alias = cluster6, alias6
		}
		for _, tcp := range []bool{false, true} {
			q := frame{to: ownMAC, payload: query, tcp: tcp, flags: 2, source: netip.AddrPortFrom(pod, 40000), target: netip.AddrPortFrom(cluster, 53)}
			f.Add(q.bytes())
			r := frame{payload: query, tcp: tcp, source: netip.AddrPortFrom(alias, 53), target: netip.AddrPortFrom(pod, 40000)}
			f.Add(r.bytes())
			r.fragmented, r.fragment = true, 1
			f.Add(r.bytes())
		}
	}

	// Loaded once: the kernel takes 30 ms to verify the programs.
	b := newBench(f)
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { home.Close() })

	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 34 || len(in) > 1500 { // the kernel wants a whole IP header
			return
		}
		if in[12] == 0x86 && len(in) < 54 {
			return
		}
		runtime.LockOSThread() // without an unlock: the thread ends with the goroutine
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Fatal(err)
		}
		b.state.reset(native(ownMAC8()))
		b := &bench{b.program, t, b.state}

		for _, p := range []*ebpf.Program{b.query, b.reply} {
			out := b.run(p, in)
			if len(out) != len(in) {
				t.Fatalf("length for %x: got %d, want %d", in, len(out), len(in))
			}
			if !bytes.Equal(out, in) && !bytes.Equal(restored(out, in), in) {
				t.Errorf("for %x got %x, with changes beside the address and the checksums", in, out)
			}
		}
	})
}

// restored returns out with the addresses and the checksums of in.
func restored(out, in []byte) []byte {
	out = bytes.Clone(out)
	take := func(from, n int) {
		if from+n <= len(out) {
			copy(out[from:from+n], in[from:])
		}
	}
	transport, protocol := 54, 0
	if in[12] == 0x08 {
		take(24, 10) // checksum and addresses
		transport, protocol = 14+int(in[14]&15)*4, int(in[23])
	} else {
		take(22, 32)
		if protocol = int(in[20]); protocol == 44 && len(in) > 62 {
			transport, protocol = 62, int(in[54])
		}
	}
	if protocol == 6 {
		take(transport+16, 2)
	} else {
		take(transport+6, 2)
	}
	return out
}

// If the kernel has no array for replies, the programs capture queries and repeat none.
func TestLoadWithoutReplies(t *testing.T) {
	b := newBench(t)
	want := errors.New("mmapable arrays are not supported")
	p, err := loadWith(func(*ebpf.MapSpec) (*ebpf.Map, error) { return nil, want }, []Pair{{cluster4, alias4}}, 53, Times{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	if files, err := p.replyFiles(); len(files) > 0 || err != nil || p.unrepeated != want {
		t.Errorf("got the files %v, error %v and the reason %v, want none and %v", files, err, p.unrepeated, want)
	}

	if err := p.slots.Put(uint32(loInterface), uint32(3)); err != nil {
		t.Fatal(err)
	}
	p.state(3).reset(native(ownMAC8()))
	p.state(3).families[family4].replied.Store(uint64(monotonic()))
	p.page.Stamp()
	p.open(true)
	f := frame{to: ownMAC, payload: query}
	f.source, f.target = ports(pod4, cluster4, 40000)
	in := f.bytes()
	f.target = netip.AddrPortFrom(alias4, 53)
	b.same("a query", in, b.run(p.query, in), f.bytes())
}

// ownMAC8 returns the address of the interface with two bytes of zero.
func ownMAC8() (mac [8]byte) {
	copy(mac[:], ownMAC[:])
	return mac
}
