package tcx

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// Replies are repeated to a pod for ten seconds after each of the server's own that reaches it
// over UDP and the same IP version.
func TestRepeatReached(t *testing.T) {
	b := newRepeatBench(t)
	b.repeat = 100 * time.Hour
	in := over4.query(frame{payload: query})
	b.serve(query, pod4, alias4)
	if got := b.sendAsIs(in); got != nil {
		t.Errorf("before the first reply: got the reply %x, want none", got)
	}

	reply := frame{payload: query}
	reply.target, reply.source = ports(pod4, alias4, 40000)
	for _, flags := range []byte{0x12, 0x18} {
		reply.tcp, reply.flags = true, flags
		b.run(b.program.reply, reply.bytes())
		if got := b.sendAsIs(in); got != nil {
			t.Errorf("after a segment with the flags %#x: got the reply %x, want none", flags, got)
		}
	}
	reply.tcp = false
	b.run(b.program.reply, reply.bytes())
	if got := b.sendAsIs(in); got == nil {
		t.Error("after a reply of the server: got no reply")
	}
	b.serve(query, pod6, alias6)
	in6 := over6.query(frame{payload: query})
	if got := b.sendAsIs(in6); got != nil {
		t.Errorf("IPv6, after a reply of the server over IPv4: got the reply %x, want none", got)
	}
	reply.target, reply.source = ports(pod6, alias6, 40000)
	b.run(b.program.reply, reply.bytes())
	if got := b.sendAsIs(in6); got == nil {
		t.Error("IPv6, after a reply of the server: got no reply")
	}
	start := b.state.families[family4].replied.Load()
	const second = uint64(time.Second)
	for _, c := range []struct {
		age  uint64
		want bool
	}{{0, true}, {9 * second, true}, {10 * second, false}, {100 * second, false}, {start, false}} {
		b.clear()
		b.serve(query, pod4, alias4)
		b.state.families[family4].replied.Store(uint64(monotonic()) - min(c.age, uint64(monotonic())))
		if got := b.sendAsIs(in); (got != nil) != c.want {
			t.Errorf("%s after a reply of the server: got the reply %x, want one: %t", time.Duration(c.age), got, c.want)
		}
	}
}

// A query that is answered after Close is not stored in memory that is gone.
func TestRepeatClosed(t *testing.T) {
	b := newRepeatBench(t)
	before := b.replies
	var err error
	if b.replies, err = OpenReplies(b.files(), []netip.Addr{alias4}, 53, Times{}); err != nil {
		t.Fatal(err)
	}
	b.install()
	b.replies.Close()
	b.serve(query, pod4, alias4)
	b.replies = before
}

// What is kept of a reply is all that its counts need.
func TestKept(t *testing.T) {
	want := dns.Repeated{
		Chain: new(dns.Chain), IPv4: true, DO: true, Type: wire.TypeAAAA, RCode: wire.NXDomain, Step: 3, QuerySize: 40,
		ReplySize: 426, Allowed: dns.Repeat{Hits: new(metrics.Counter)},
	}
	k := keptOf(&want, 7)
	if got := k.repeated(); !reflect.DeepEqual(got, want) || k.hash != 7 {
		t.Errorf("got %+v and the hash %d, want %+v and 7", got, k.hash, want)
	}
}
