package forward

import (
	"sync"
	"sync/atomic"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// Of many queries of a client for one name and type with different EDNS options, few are sent at
// the same time, some wait, and the others get SERVFAIL.
func TestSimilarQueriesBounded(t *testing.T) {
	release := make(chan struct{})
	var inFlight, most atomic.Int32
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		most.Store(max(most.Load(), inFlight.Add(1)))
		go func() {
			<-release
			inFlight.Add(-1)
			send(pack(answerOf(q, "1")))
		}()
	})
	r := newHarness(t, "forward . "+up.addr+" {\n read_timeout 1m\n max_fails 0\n}")
	r.sendOnce()
	const n, sending = 200, maxSimilar / 2 // one client leaves half
	var clients sync.WaitGroup
	var answered, failed atomic.Int32
	for i := range n {
		clients.Go(func() {
			m := query("a.example.", mdns.TypeA)
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = append(m.IsEdns0().Option, &mdns.EDNS0_LOCAL{Code: 65001, Data: []byte{byte(i)}})
			reply, _ := r.ask(m, dns.UDP)
			switch brief(reply) {
			case "192.0.2.1":
				answered.Add(1)
			case "SERVFAIL":
				failed.Add(1)
			}
		})
	}
	chaintest.Eventually(t, "the queries above the limits have failed", func() bool {
		return failed.Load() == n-sending-maxWaitingSimilar && up.queryCount() == sending
	})
	r.forward[0].set.exchangeMu.Lock()
	waiting := len(r.forward[0].set.exchanges)
	r.forward[0].set.exchangeMu.Unlock()
	if waiting != 1 {
		t.Errorf("got %d lists of similar exchanges, want 1", waiting)
	}
	close(release)
	clients.Wait()
	if got := answered.Load(); got != sending+maxWaitingSimilar || most.Load() > sending {
		t.Errorf("%d similar queries: got %d answers, at most %d at the same time; want %d, %d",
			n, got, most.Load(), sending+maxWaitingSimilar, sending)
	}
	r.forward[0].set.exchangeMu.Lock()
	defer r.forward[0].set.exchangeMu.Unlock()
	if n := len(r.forward[0].set.exchanges); n != 0 {
		t.Errorf("got %d lists of similar exchanges at the end, want none", n)
	}
}
