package forward

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
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
			slices.Sort(refused[client]) // they end at the same time
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
	wantRefused("192.0.2.1", "more.example.", "n3.example.", "n4.example.", "n5.example.")

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
	chaintest.Eventually(t, "one query is refused", func() bool { return r.forward[0].rejects.Value() == 1 })
	close(release)
	all.Wait()
}

// A query that loses its place after its reply has come is answered.
func TestLimiterKeepsReplyOfDisplacedQuery(t *testing.T) {
	l := &limiter{most: 2}
	var queries [2]*waiter
	for i := range queries {
		queries[i] = &waiter{wake: func() {}, client: netip.MustParseAddr("192.0.2.1"), exchange: &exchange{set: &upstreamSet{}}}
		queries[i].exchange.finished.Store(true)
		l.enter(queries[i])
	}
	other := &waiter{wake: func() {}, client: netip.MustParseAddr("192.0.2.2")}
	if !l.enter(other) {
		t.Fatal("another client got no place")
	}
	if queries[1].place != nil || l.leave(queries[1]) != queries[1].exchange {
		t.Error("the query that lost its place has lost its reply as well")
	}
	queries[1].exchange.err = errLimit
	if l.leave(queries[1]) != nil {
		t.Error("an exchange that ended for the limit is a reply")
	}
}

// The client that loses a place is the one with most queries, after any changes.
func TestLimiterFindsLargest(t *testing.T) {
	const most = 40
	random := rand.New(rand.NewPCG(1, 2))
	l := &limiter{most: most}
	held := map[netip.Addr]int{}
	var waiting []*waiter
	for range 20_000 {
		if random.IntN(3) == 0 && len(waiting) > 0 {
			i := random.IntN(len(waiting))
			l.leave(waiting[i])
			held[waiting[i].client]--
			waiting = slices.Delete(waiting, i, i+1)
			continue
		}

		// Few clients ask most of all.
		client := netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(1 + random.IntN(60)))})
		w := &waiter{wake: func() {}, client: client}
		if !l.enter(w) {
			if len(waiting) < most {
				t.Fatalf("refused with %d of %d places taken", len(waiting), most)
			}
			continue
		}

		lost := slices.IndexFunc(waiting, func(w *waiter) bool { return w.place == nil })
		if lost >= 0 {
			largest := slices.Max(slices.Collect(maps.Values(held)))
			if got := held[waiting[lost].client]; got != largest {
				t.Fatalf("a client with %d queries lost a place, want one with %d", got, largest)
			}
			held[waiting[lost].client]--
			waiting = slices.Delete(waiting, lost, lost+1)
		}
		held[client]++
		waiting = append(waiting, w)
	}
	if l.waiting() != len(waiting) {
		t.Errorf("got %d waiting queries, want %d", l.waiting(), len(waiting))
	}

	for _, w := range waiting {
		l.leave(w)
	}
	if l.waiting() != 0 || len(l.clients) != 0 || len(l.byCount) > 1 {
		t.Errorf("in the end: %d queries, %d clients, %d counts, want none", l.waiting(), len(l.clients), len(l.byCount))
	}
}

// waiting returns the number of waiting queries.
func (l *limiter) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}

// A panic of an event, which the query that causes it recovers from, leaves the exchange as it was.
func TestProcessPanics(t *testing.T) {
	x := new(exchange)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("got no panic, want the event's")
			}
		}()
		x.process(func() { panic("event") })
	}()

	done := false
	x.process(func() { done = true })
	if !done {
		t.Error("the next event is not processed")
	}
}
