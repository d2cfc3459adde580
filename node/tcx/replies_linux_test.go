package tcx

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
)

// An answerer answers A queries with a TXT record of any size, for a time, and counts repeated replies.
type answerer struct {
	size     int
	repeat   time.Duration
	repeated uint64
	last     dns.Repeated
	samples  sampleReader
}

func (a *answerer) ServeDNS(q *dns.Query) dns.Verdict {
	r := wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeTXT, 30, a.size)
	q.Answer.Append(wire.Answers, append(r, make([]byte, a.size)...), 1)
	q.AllowRepeat(dns.Repeat{For: a.repeat})
	return dns.Done
}

func (a *answerer) Repetition() dns.Repetition {
	return dns.Repetition{Count: func(r *dns.Repeated, n uint64) {
		a.repeated += n
		a.last = *r
	}, Samples: a.samples.rate, Sample: a.samples.take}
}

// A repeatBench is a bench with a Port whose replies are repeated.
type repeatBench struct {
	*bench
	answerer
	port    dns.Port
	replies *Replies
}

func newRepeatBench(t testing.TB) *repeatBench {
	t.Helper()
	return newTimedRepeatBench(t, Times{})
}

func newTimedRepeatBench(t testing.TB, times Times) *repeatBench {
	b := &repeatBench{bench: newBench(t), answerer: answerer{size: 20, repeat: time.Second}}
	var err error
	if b.replies, err = OpenReplies(b.files(), []netip.Addr{alias4, alias6}, 53, times); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.replies.Close)
	b.install()
	return b
}

// files returns the files for OpenReplies, which the test closes.
func (b *repeatBench) files() []*os.File {
	b.t.Helper()
	files, err := b.program.replyFiles()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range files {
		b.t.Cleanup(func() { _ = f.Close() })
	}
	return files
}

// install makes a new configuration answer.
func (b *repeatBench) install() {
	chain := new(dns.Chain)
	chain.Add("answerer", &b.answerer)
	mux := dns.NewMux(nil, nil)
	_ = mux.Route(wire.Root, chain)
	mux.Repeat(b.replies.Keep, b.replies.Forget)
	b.port.Swap(mux)
}

// serve makes the Port answer a query, and returns the reply.
func (b *repeatBench) serve(packet []byte, pod, alias netip.Addr) []byte {
	b.t.Helper()
	q := dns.NewQuery(nil)
	q.Peer, q.Local = ports(pod, alias, 40000)
	q.Reset(packet, dns.UDP, time.Now())
	if b.port.Serve(q, make([]byte, 0, 1<<16)) != dns.Answered {
		b.t.Fatalf("no answer to %x", packet)
	}
	reply := bytes.Clone(q.Reply())
	q.Observe(time.Now())
	return reply
}

// send runs the program on a frame of a pod that a reply has just reached, and returns the
// frame's reply, or nil if the packet is passed on.
func (b *repeatBench) send(in []byte) []byte {
	b.t.Helper()
	for family := range families {
		b.state.families[family].replied.Store(uint64(monotonic()))
	}
	return b.sendAsIs(in)
}

// sendAsIs is send for a pod that no reply has reached lately.
func (b *repeatBench) sendAsIs(in []byte) []byte {
	b.t.Helper()
	b.page.Stamp()
	for family := range families {
		b.state.families[family].pending.Store(0)
	}
	o := ebpf.RunOptions{Data: in, DataOut: make([]byte, 1600)}
	verdict, err := b.program.query.Run(&o)
	if err != nil {
		b.t.Fatal(err)
	}
	const redirect = 7
	switch int32(verdict) {
	case redirect:
		return o.DataOut
	case -1:
		return nil
	}
	b.t.Fatalf("verdict: got %d, want -1 or %d", int32(verdict), redirect)
	return nil
}

// A conversation is a query to a cluster's address.
type conversation struct{ pod, cluster, alias netip.Addr }

var (
	over4 = conversation{pod4, cluster4, alias4}
	over6 = conversation{pod6, cluster6, alias6}
)

func (c conversation) query(f frame) []byte {
	f.to = ownMAC
	f.source, f.target = ports(c.pod, c.cluster, 40000)
	return f.bytes()
}

// reply returns the frame that answers the query's.
func (c conversation) reply(f frame, message []byte) []byte {
	f.to, f.payload = [6]byte{2, 0, 0, 0, 0, 9}, message
	f.target, f.source = ports(c.pod, c.cluster, 40000)
	out := f.bytes()
	copy(out[6:], ownMAC[:])
	return out
}

// withID returns a message with another ID.
func withID(id uint16, message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, id), message[2:]...)
}

// The program repeats a reply to queries with other IDs, from any pod and port: all bytes and
// checksums are right.
func TestRepeat(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	b := newRepeatBench(t)
	n := uint64(0)
	for _, c := range []conversation{over4, over6} {
		for size := range 330 {
			b.size = size
			b.clear()
			query := numbered(size)
			reply := b.serve(query, c.pod, c.alias)
			for _, f := range []frame{{}, {withoutChecksum: c.pod.Is4()}} {
				id := uint16(rand.Uint32())
				f.payload = withID(id, query)
				in := c.query(f)
				got := b.send(in)
				want := c.reply(f, withID(id, reply))
				b.same(fmt.Sprintf("%d bytes", size), in, got, want)
				n++
			}
		}
	}
	b.install()
	if b.repeated != n || b.last.ReplySize == 0 || b.last.IPv4 {
		t.Errorf("counted replies: got %d, the last %+v, want %d", b.repeated, b.last, n)
	}
	if name := b.last.Name; len(name) != 15 || !bytes.HasSuffix(name, []byte("\x07example\x00")) {
		t.Errorf("name of the last counted replies: got %q, want one of those queried", name)
	}
	if got := b.replies.Total(); got != n {
		t.Errorf("total: got %d, want %d", got, n)
	}
}

// clear removes all replies, which no packet is compared with now.
func (b *repeatBench) clear() {
	b.replies.Forget()
	for i := range b.replies.replies {
		b.replies.replies[i].until.Store(0)
	}
}

// numbered returns a query for one of many names.
func numbered(n int) []byte {
	return fmt.Appendf(nil, "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05%05d\x07example\x00\x00\x01\x00\x01", n)
}

// Queries that differ in any way are passed on, and so are all that must not be answered.
// See TOB-CDNS-8 in docs/reference/advisories.md.
func TestRepeatOthers(t *testing.T) {
	b := newRepeatBench(t)
	b.serve(query, pod4, alias4)
	passed := func(what string, f frame, c conversation) {
		t.Helper()
		if f.payload == nil {
			f.payload = query
		}
		if got := b.send(c.query(f)); got != nil {
			t.Errorf("%s: got the reply %x, want none", what, got)
		}
	}
	answered := func(what string) {
		t.Helper()
		if got := b.send(over4.query(frame{payload: query})); got == nil {
			t.Errorf("%s: got no reply", what)
		}
	}
	answered("the same query")
	for i := 2; i < len(query); i++ {
		other := bytes.Clone(query)
		other[i] ^= 1 << (i % 8)
		passed(fmt.Sprintf("byte %d", i), frame{payload: other}, over4)
	}
	passed("shorter", frame{payload: query[:len(query)-1]}, over4)
	passed("longer", frame{payload: append(bytes.Clone(query), 0)}, over4)
	passed("too long", frame{payload: append(bytes.Clone(query), make([]byte, 200)...)}, over4)
	passed("IPv6", frame{}, over6)
	passed("TCP", frame{tcp: true, flags: 2}, over4)
	passed("a trailer", frame{trailer: []byte{0}}, over4)
	passed("a fragment", frame{fragment: 0x2000}, over4)
	passed("options", frame{options: []byte{1, 1, 1, 1}}, over4)
	answered("after others")

	b.open(false)
	passed("closed gate", frame{}, over4)
	b.open(true)
	answered("open again")

	b.install()
	passed("another configuration", frame{}, over4)
}

// A reply of a configuration that was replaced while the reply was sent is not stored.
func TestRepeatSwapped(t *testing.T) {
	b := newRepeatBench(t)
	in := over4.query(frame{payload: query})
	q := dns.NewQuery(nil)
	q.Peer, q.Local = ports(pod4, alias4, 40000)
	q.Reset(query, dns.UDP, time.Now())
	if b.port.Serve(q, make([]byte, 0, 1<<16)) != dns.Answered || !q.MayRepeat() {
		t.Fatal("got no reply that may be repeated")
	}
	b.install()
	b.replies.Keep(q)
	if got := b.send(in); got != nil {
		t.Errorf("got the reply %x of the replaced configuration", got)
	}
	b.serve(query, pod4, alias4)
	if got := b.send(in); got == nil {
		t.Error("got no reply of the new configuration")
	}
}

// A reply is repeated until its time is over, and stored again then.
func TestRepeatTime(t *testing.T) {
	b := newRepeatBench(t)
	in := over4.query(frame{payload: query})
	b.repeat = 0
	b.serve(query, pod4, alias4)
	if b.send(in) != nil {
		t.Error("got a reply that may not be repeated")
	}
	b.repeat = 50 * time.Millisecond
	for round := range 3 {
		start := time.Now()
		b.serve(query, pod4, alias4)
		for b.send(in) != nil {
			if time.Since(start) > 10*time.Second {
				t.Fatal("got a reply after 10 s")
			}
		}
		if d := time.Since(start); d < b.repeat {
			t.Errorf("round %d: got replies for %s, want %s", round, d, b.repeat)
		}
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline) && b.resting(); {
			time.Sleep(time.Millisecond)
		}
	}
}

// resting reports whether some reply may not be replaced yet.
func (b *repeatBench) resting() bool {
	now := uint64(monotonic())
	for i := range b.replies.replies {
		if b.replies.replies[i].until.Load()+uint64(rest) > now {
			return true
		}
	}
	return false
}

// What depends on the client or on more than the query is not stored.
func TestRepeatUnsuitable(t *testing.T) {
	b := newRepeatBench(t)
	sent := func(what string, payload []byte) {
		t.Helper()
		if got := b.send(over4.query(frame{payload: payload})); got != nil {
			t.Errorf("%s: got the reply %x, want none", what, got)
		}
	}
	b.serve(query, pod4, netip.MustParseAddr("169.254.20.10"))
	sent("another address", query)
	q := dns.NewQuery(nil)
	q.Peer, q.Local = netip.AddrPortFrom(pod4, 40000), netip.AddrPortFrom(alias4, 5353)
	q.Reset(query, dns.UDP, time.Now())
	if b.port.Serve(q, make([]byte, 0, 1<<16)) != dns.Answered {
		t.Fatal("another port: got no answer")
	}
	q.Observe(time.Now())
	sent("another port", query)
	b.size = 400
	b.serve(query, pod4, alias4)
	sent("a large reply", query)
	b.size = 20
	cookie := append(bytes.Clone(query), 0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8)
	cookie[11] = 1
	b.serve(cookie, pod4, alias4)
	sent("EDNS options", cookie)

	chain := new(dns.Chain)
	chain.Add("answerer", &b.answerer)
	chain.Observe(observer{})
	mux := dns.NewMux(nil, nil)
	_ = mux.Route(wire.Root, chain)
	mux.Repeat(b.replies.Keep, b.replies.Forget)
	b.port.Swap(mux)
	b.serve(query, pod4, alias4)
	sent("an observer that wants each query", query)

	view := new(dns.Chain)
	view.Match = func(*dns.Query) bool { return false }
	view.Add("answerer", &b.answerer)
	chain = new(dns.Chain)
	chain.Add("answerer", &b.answerer)
	mux = dns.NewMux(nil, nil)
	_ = mux.Route(wire.Root, view)
	_ = mux.Route(wire.Root, chain)
	mux.Repeat(b.replies.Keep, b.replies.Forget)
	b.port.Swap(mux)
	b.serve(query, pod4, alias4)
	sent("a view", query)
}

type observer struct{}

func (observer) ObserveDNS(*dns.Query) {}

// Many names: each reply is the right one or there is none, while others are stored.
func TestRepeatMany(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	b := newRepeatBench(t)
	random := rand.New(rand.NewPCG(1, 2))
	replies := map[int][]byte{}
	repeated := 0
	for range race.Fewer(20_000) {
		n := random.IntN(2000)
		name := numbered(n)
		in := over4.query(frame{payload: name})
		got := b.send(in)
		if got == nil {
			b.size = random.IntN(300)
			b.repeat = time.Duration(1 + random.IntN(int(200*time.Millisecond)))
			replies[n] = b.serve(name, pod4, alias4)
			continue
		}
		repeated++
		if message := got[14+20+8:]; !bytes.Equal(message, replies[n]) {
			t.Fatalf("reply to %q: got %x, want %x", name, message, replies[n])
		}
	}
	if repeated == 0 {
		t.Error("no reply was repeated")
	}
	t.Logf("%d repeated", repeated)
}

// Frames with random errors are passed on, or answered with the addresses exchanged: a wrong
// checksum stays wrong, so that the receiver discards the reply as the server would have
// discarded the query.
func TestRepeatDamagedFrames(t *testing.T) {
	b := newRepeatBench(t)
	random := rand.New(rand.NewPCG(3, 4))
	for _, c := range []conversation{over4, over6} {
		header := 20
		if c.pod.Is6() {
			header = 40
		}
		valid := c.query(frame{payload: query})
		stored := time.Time{}
		var reply []byte
		repeated := 0
		for range 20_000 {
			if time.Since(stored) > time.Second/2 {
				b.clear()
				reply, stored = b.serve(query, c.pod, c.alias), time.Now()
			}
			in := bytes.Clone(valid)
			for range 1 + random.IntN(3) {
				in[random.IntN(len(in))] = byte(random.Uint32())
			}
			out := b.sendAny(in)
			if out == nil {
				continue
			}
			repeated++
			transport := 14 + header
			payload := transport + 8
			want := bytes.Clone(in[:payload])
			copy(want, in[6:12])
			copy(want[6:], in[:6])
			size := c.pod.BitLen() / 8
			addresses := transport - 2*size
			copy(want[addresses:], in[addresses+size:transport])
			copy(want[addresses+size:], in[addresses:addresses+size])
			copy(want[transport:], in[transport+2:transport+4])
			copy(want[transport+2:], in[transport:transport+2])
			binary.BigEndian.PutUint16(want[transport+4:], uint16(8+len(reply)))
			if header == 20 {
				binary.BigEndian.PutUint16(want[16:], uint16(28+len(reply)))
				want[22] = 64
			} else {
				binary.BigEndian.PutUint16(want[18:], uint16(8+len(reply)))
				want[21] = 64
			}
			want = append(want, withID(binary.BigEndian.Uint16(in[payload:]), reply)...)
			// The errors of the checksums are the same before and after.
			if header == 20 {
				if a, b := fold(sum(0, in[14:34])), fold(sum(0, out[14:34])); a != b {
					t.Errorf("sum of the IP header: got %#x, want %#x as in %x", b, a, in)
				}
				copy(want[24:26], out[24:26])
			}
			if a, b := errorOf(in, transport, size), errorOf(out, transport, size); a != b {
				t.Errorf("sum of the packet: got %#x, want %#x as in %x", b, a, in)
			}
			copy(want[transport+6:transport+8], out[transport+6:transport+8])
			b.same("a damaged frame", in, out, want)
		}
		if repeated < 1000 {
			t.Errorf("repeated replies: got %d of 20,000, want more", repeated)
		}
	}
}

// errorOf returns the sum of a UDP packet and its pseudo header, 0xffff if it is right or
// there is no checksum.
func errorOf(frame []byte, transport, size int) uint16 {
	if size == 4 && binary.BigEndian.Uint16(frame[transport+6:]) == 0 {
		return 0xffff
	}
	return fold(sum(sum(17+uint32(len(frame)-transport), frame[transport-2*size:transport]), frame[transport:]))
}

// sendAny is send for a frame that the kernel may refuse.
func (b *repeatBench) sendAny(in []byte) []byte {
	if version := in[14] >> 4; binary.BigEndian.Uint16(in[12:]) == 0x0800 && version != 4 || binary.BigEndian.Uint16(in[12:]) == 0x86dd && version != 6 {
		return nil
	}
	return b.send(in)
}
