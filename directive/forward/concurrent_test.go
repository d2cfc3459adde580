package forward

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// exchanges returns the number of names and types for which queries are being sent.
func exchanges(s *upstreamSet) int {
	s.exchangeMu.Lock()
	defer s.exchangeMu.Unlock()
	return len(s.exchanges)
}

// A client alone has all places of max_concurrent. Another one gets its share of them: the
// latest queries of the first are refused, and are not asked any more.
func TestMaxConcurrentShares(t *testing.T) {
	const most = 6
	release := make(chan struct{})
	up := newFakeUpstream(t, answerAfter(release, "1"))
	r := newHarness(t, fmt.Sprintf("forward . %s {\n max_concurrent %d\n}", up.addr, most))
	l := &r.forward[0].limiter

	var mu sync.Mutex
	refused := map[string][]string{} // names by client
	var all sync.WaitGroup
	ask := func(client, name string) {
		all.Go(func() {
			m, _ := r.askFrom(client, query(name, mdns.TypeA), dns.UDP)
			if m.Rcode == mdns.RcodeRefused {
				mu.Lock()
				defer mu.Unlock()
				refused[client] = append(refused[client], name)
			} else if got := brief(m); got != "192.0.2.1" {
				t.Errorf("%s of %s: got %s, want the address or REFUSED", name, client, got)
			}
		})
	}
	begin := func(client, name string) {
		before := up.queryCount()
		ask(client, name)
		chaintest.Eventually(t, name+" is asked", func() bool { return up.queryCount() > before })
	}
	wantRefused := func(client string, want ...string) {
		t.Helper()
		chaintest.Eventually(t, fmt.Sprintf("%v of %s are refused", want, client), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(refused[client], want)
		})
	}

	for i := range most {
		begin("192.0.2.1", fmt.Sprintf("n%d.example.", i))
	}
	ask("192.0.2.1", "more.example.")
	wantRefused("192.0.2.1", "more.example.")

	for i := range most / 2 {
		begin("192.0.2.2", fmt.Sprintf("m%d.example.", i))
	}
	ask("192.0.2.2", "others.example.")
	wantRefused("192.0.2.2", "others.example.")
	wantRefused("192.0.2.1", "more.example.", "n5.example.", "n4.example.", "n3.example.")

	// An address of the same /64 is the same client.
	begin("2001:db8::1", "six0.example.")
	begin("2001:db8::2", "six1.example.")
	ask("2001:db8::3", "six2.example.")
	wantRefused("2001:db8::3", "six2.example.")

	if got := l.waiting(); got != most {
		t.Errorf("got %d waiting queries, want %d", got, most)
	}
	if got := exchanges(r.forward[0].set); got != most {
		t.Errorf("got %d names that are asked, want %d: those of refused queries are not", got, most)
	}
	close(release)
	all.Wait()
	if got := l.waiting(); got != 0 || len(l.clients) != 0 {
		t.Errorf("in the end: got %d waiting queries of %d clients, want none", got, len(l.clients))
	}
}

// A query that has lost its place leaves an equal one of another client alone.
func TestMaxConcurrentEqualQueries(t *testing.T) {
	release := make(chan struct{})
	up := newFakeUpstream(t, answerAfter(release, "1"))
	r := newHarness(t, "forward . "+up.addr+" {\n max_concurrent 3\n}")

	var all sync.WaitGroup
	ask := func(client, name, want string) {
		before := r.forward[0].limiter.waiting()
		all.Go(func() {
			m, _ := r.askFrom(client, query(name, mdns.TypeA), dns.UDP)
			if got := brief(m); got != want {
				t.Errorf("%s of %s: got %s, want %s", name, client, got, want)
			}
		})
		chaintest.Eventually(t, name+" waits", func() bool { return r.forward[0].limiter.waiting() > before || before == 3 })
	}
	ask("192.0.2.1", "x.example.", "192.0.2.1")
	ask("192.0.2.2", "equal.example.", "192.0.2.1")
	ask("192.0.2.1", "equal.example.", "REFUSED")
	ask("192.0.2.3", "y.example.", "192.0.2.1") // takes the place of the second of 192.0.2.1
	chaintest.Eventually(t, "y is asked", func() bool { return up.queryCount() == 3 })
	close(release)
	all.Wait()
}
