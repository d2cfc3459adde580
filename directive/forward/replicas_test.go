package forward

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/chaintest"

	mdns "github.com/miekg/dns"
)

// A headlessName is a resolver that knows one name, whose addresses change.
type headlessName struct {
	*fakeUpstream
	mu    sync.Mutex
	addrs []string
}

func newHeadlessName(t *testing.T, addrs ...string) *headlessName {
	h := &headlessName{addrs: addrs}
	h.fakeUpstream = newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := new(mdns.Msg).SetReply(q)
		h.mu.Lock()
		defer h.mu.Unlock()
		if q.Question[0].Qtype == mdns.TypeA {
			for _, a := range h.addrs {
				m.Answer = append(m.Answer, rr(q.Question[0].Name+" 5 IN A "+a))
			}
		}
		if len(h.addrs) == 0 {
			m.Rcode = mdns.RcodeNameError
		}
		send(pack(m))
	})
	return h
}

func (h *headlessName) set(addrs ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addrs = addrs
}

// The upstreams of fallback are queried as long as no address of the others is known, and
// no longer.
func TestFallbackUntilResolved(t *testing.T) {
	port := startUpstreams(t, "127.0.0.2", "127.0.0.3")
	name := newHeadlessName(t)
	spare := newFakeUpstream(t, answerWithAddress("9"))
	r := newHarness(t, "forward . replicas.example.test:"+port+" {\n resolver "+name.addr+"\n fallback "+spare.addr+"\n}")
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.9")
	name.set("127.0.0.2", "127.0.0.3")
	chaintest.Eventually(t, "both replicas are known", func() bool { names, _ := r.forward[0].Upstreams(); return len(names) == 3 })
	before := spare.queryCount()
	seen := map[string]int{}
	for i := range 40 {
		seen[r.query(fmt.Sprintf("n%d.example.", i), mdns.TypeA)]++
	}
	if seen["192.0.2.2"] == 0 || seen["192.0.2.3"] == 0 || seen["192.0.2.2"]+seen["192.0.2.3"] < 38 {
		t.Errorf("answers by upstream: got %v, want both replicas and no other", seen)
	}
	if n := spare.queryCount() - before; n > 2 { // a busy machine may send one twice
		t.Errorf("the fallback got %d of 40 queries, want none", n)
	}
}

// If the replicas are gone the fallback answers within the retry delays of two of them, and
// the name is looked up at once.
func TestFallbackAfterFailure(t *testing.T) {
	port := startUpstreams(t, "127.0.0.2")
	name := newHeadlessName(t, "127.0.0.4", "127.0.0.5", "127.0.0.6", "127.0.0.7")
	spare := newFakeUpstream(t, answerWithAddress("9"))
	r := newHarness(t, "forward . replicas.example.test:"+port+" {\n resolver "+name.addr+"\n fallback "+spare.addr+"\n attempts 4\n}")
	name.set("127.0.0.2")
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.9")
	chaintest.Eventually(t, "the new replica is known", func() bool {
		names, _ := r.forward[0].Upstreams()
		return slices.Equal(names, []string{"127.0.0.2:" + port, spare.addr})
	})
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.2")
}

// Of many addresses each process uses a random choice, and keeps what it can of it.
func TestManyReplicas(t *testing.T) {
	var all []netip.Addr
	for i := range 300 {
		all = append(all, netip.AddrFrom4([4]byte{10, 1, byte(i / 250), byte(i%250 + 1)}))
	}
	used := map[netip.Addr]int{}
	for range 200 {
		r := newHarness(t, "forward . 192.0.2.1 {\n fallback 192.0.2.2\n}")
		s := r.forward[0].set
		first := s.choose(slices.Clone(all))
		if len(first) != maxUpstreams-1 {
			t.Fatalf("got %d of 300 addresses, want %d: the fallback needs a place", len(first), maxUpstreams-1)
		}
		kept := 0
		for _, a := range s.choose(slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return a == first[3] })) {
			if slices.Contains(first, a) {
				kept++
			}
		}
		if kept != len(first)-1 {
			t.Fatalf("one of 300 addresses is gone: got %d old ones, want %d", kept, len(first)-1)
		}
		for _, a := range first {
			used[a]++
		}
	}
	if len(used) < 290 {
		t.Errorf("200 processes use %d of 300 addresses, want nearly all", len(used))
	}
	for a, n := range used {
		if n > 40 { // 9 on average
			t.Errorf("%d of 200 processes use %v, want about 9", n, a)
		}
	}
}

// With prefer_tcp queries are sent over TCP, and over UDP to an upstream without TCP.
func TestPreferTCP(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	r := newHarness(t, "forward . "+up.addr+" {\n prefer_tcp\n}")
	r.sendOnce()
	for i := range 3 {
		r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1")
	}
	if n, tcp, _ := up.counts(); tcp != n {
		t.Errorf("got %d of %d queries over TCP, want all", tcp, n)
	}
	_ = up.tcp.Close()
	up.closeConns()
	for i := range 3 {
		r.wantAnswer(fmt.Sprintf("m%d.example.", i), mdns.TypeA, "192.0.2.1")
	}
}

// A query that the upstreams drop on purpose is sent a limited number of times.
func TestAttempts(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if !strings.HasPrefix(q.Question[0].Name, "dropped") {
			answerWithAddress("1")(q, tcp, send)
		}
	})
	for _, attempts := range []int{1, 3} {
		r := newHarness(t, fmt.Sprintf("forward . %s {\n attempts %d\n read_timeout 100ms\n}", up.addr, attempts))
		before, began := up.queryCount(), time.Now()
		if got := r.query(fmt.Sprintf("dropped%d.example.", attempts), mdns.TypeA); got != "SERVFAIL" {
			t.Errorf("attempts %d: got %s, want SERVFAIL", attempts, got)
		}
		took := time.Since(began)
		chaintest.Eventually(t, "the upstream has read all attempts", func() bool { return up.queryCount()-before > max(attempts, 2) })
		// One more is sent without EDNS if no other was, and one over TCP.
		if n, want := up.queryCount()-before, max(attempts, 2)+1; n != want {
			t.Errorf("attempts %d: got %d queries, want %d", attempts, n, want)
		}
		bound.AtMost(t, fmt.Sprintf("SERVFAIL after the last of %d attempts", attempts), took, exchangeTimeout-time.Second)
		r.wantAnswer("other.example.", mdns.TypeA, "192.0.2.1")
	}
}
