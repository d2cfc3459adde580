package forward

import (
	"net/netip"
	"sync"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// A client that sends a name with many client subnets keeps others from the answer for that name
// neither while its queries wait for the upstream nor when they fail.
func TestSimilarQueriesOtherClient(t *testing.T) {
	release := make(chan struct{})
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		if o := q.IsEdns0(); o != nil && len(o.Option) > 0 {
			go func() { <-release; send(pack(answerOf(q, "1"))) }()
			return
		}
		send(pack(answerOf(q, "2")))
	})
	r := newHarness(t, "forward . "+up.addr+" {\n read_timeout 1m\n max_fails 0\n}")
	r.sendOnce()
	var flood sync.WaitGroup
	for i := range 200 {
		flood.Go(func() {
			m := query("a.example.", mdns.TypeA)
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = append(m.IsEdns0().Option, &mdns.EDNS0_LOCAL{Code: 65001, Data: []byte{byte(i)}})
			_, _ = r.ask(m, dns.UDP)
		})
	}
	chaintest.Eventually(t, "the flood's queries are sent", func() bool { return up.queryCount() == maxSimilar/2 })
	for range 3 {
		if got, _ := r.askFrom("10.0.0.2", query("a.example.", mdns.TypeA), dns.UDP); brief(got) != "192.0.2.2" {
			t.Errorf("plain query of another client: got %s, want 192.0.2.2", brief(got))
		}
	}
	close(release)
	flood.Wait()
}

// add adds an exchange of a client to a list, as join does.
func (first *exchange) add(t *testing.T, client string) (x *exchange, list *exchange, displaced *exchange) {
	t.Helper()
	x = &exchange{counted: netip.MustParseAddr(client)}
	_, displaced = x.admit(first)
	if first == nil {
		return x, x, displaced
	}
	at := first
	for at.nextSimilar != nil {
		at = at.nextSimilar
	}
	at.nextSimilar = x
	return x, first, displaced
}

// Each client leaves as many places as it has, and of those that wait the client with the fewest
// is the next.
func TestSimilarShares(t *testing.T) {
	var list *exchange
	begun := map[string]int{}
	for _, client := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"} {
		for range 10 {
			var x *exchange
			if x, list, _ = list.add(t, client); x.begun {
				begun[client]++
			}
		}
	}
	for client, want := range map[string]int{"192.0.2.1": 4, "192.0.2.2": 2, "192.0.2.3": 1, "192.0.2.4": 1, "192.0.2.5": 0} {
		if begun[client] != want {
			t.Errorf("got %d exchanges of %s that send, want %d", begun[client], client, want)
		}
	}
	list.begun = false // the first one has ended, as if it waited again
	if next := list.next(); next == nil || next.counted != netip.MustParseAddr("192.0.2.5") {
		t.Errorf("got %+v as the next to send, want one of 192.0.2.5", next)
	}
}

// When all places are taken, a client takes one of that which has most; alone it takes none.
// See CVE-2026-42534 in docs/reference/advisories.md.
func TestSimilarDisplaced(t *testing.T) {
	var list, displaced *exchange
	for i := range maxSimilar/2 + maxWaitingSimilar + 10 {
		if _, list, displaced = list.add(t, "192.0.2.1"); displaced != nil {
			t.Fatalf("exchange %d took the place of another one of its client", i)
		}
		if all, _ := list.count(netip.Addr{}); all.waiting > maxWaitingSimilar {
			break // the last one was refused
		}
	}
	for range maxSimilar {
		if _, list, displaced = list.add(t, "192.0.2.2"); displaced != nil {
			break
		}
	}
	if displaced == nil || displaced.counted != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("got %+v displaced, want one of 192.0.2.1", displaced)
	}

	x := &exchange{counted: netip.MustParseAddr("192.0.2.1")}
	x.shareWith(list, netip.MustParseAddr("192.0.2.9"))
	if want := netip.MustParseAddr("192.0.2.9"); x.counted != want {
		t.Errorf("an exchange that another client joins counts for %v, want %v", x.counted, want)
	}
}
