package cache

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// replies receives n replies of parked queries and counts their response codes.
func (w *harness) replies(n int) map[int]int {
	codes := map[int]int{}
	for range n {
		codes[(<-w.sent).Rcode]++
	}
	return codes
}

// Equal queries that wait at the same time reach the upstream once.
func TestEqualQueriesCoalesced(t *testing.T) {
	const n = 100
	for _, test := range []struct {
		name   string
		answer func(q *dns.Query, n int) error
		asked  int64
		codes  map[int]int
	}{
		{"records", addressAnswer(300), 1, map[int]int{mdns.RcodeSuccess: n}},
		{"NXDOMAIN", answerWith(wire.NXDomain, ";\n"+soa), 1, map[int]int{mdns.RcodeNameError: n}},
		{"REFUSED", answerWith(wire.Refused, ""), 1, map[int]int{mdns.RcodeRefused: n}},
		{"a referral", answerWith(wire.NoError, ";\nexample.org. 300 IN NS ns.example.org."), 1, map[int]int{mdns.RcodeSuccess: n}},
		{"no reply", func(*dns.Query, int) error { return errors.New("no reply") }, 1, map[int]int{mdns.RcodeServerFailure: n}},
		{"this server's own", func(q *dns.Query, n int) error {
			q.Cacheable = false
			return addressAnswer(300)(q, n)
		}, n, map[int]int{mdns.RcodeSuccess: n}},
		{"the first two panic", func(q *dns.Query, n int) error {
			if n < 2 {
				panic("in the handler")
			}
			return addressAnswer(300)(q, n)
		}, 3, map[int]int{mdns.RcodeSuccess: n - 2, mdns.RcodeServerFailure: 2}},
		{"the first is cancelled", func(q *dns.Query, n int) error {
			if n < 1 {
				return context.Canceled
			}
			return addressAnswer(300)(q, n)
		}, 2, map[int]int{mdns.RcodeSuccess: n - 1, mdns.RcodeServerFailure: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHarness(t, stock)
				u := w.upstreams["a"]
				u.answer, u.block = test.answer, make(chan struct{})
				for range n {
					if w.send(newQuery("www.example.org", mdns.TypeA)) != nil {
						t.Fatal("got an answer before the upstream's reply, want a parked query")
					}
				}
				synctest.Wait()
				u.wantQueries(t, 1)
				close(u.block)
				got := w.replies(n)
				for code, times := range test.codes {
					if got[code] != times {
						t.Errorf("%s: %d times, want %d", mdns.RcodeToString[code], got[code], times)
					}
				}
				u.wantQueries(t, test.asked)
				if f := w.pendingQueries(); f != 0 {
					t.Errorf("got %d pending queries at the end, want 0", f)
				}
			})
		})
	}
}

// A query that leads back to itself by another name would wait for its own pending
// query; it gets SERVFAIL.
func TestQueryWaitingForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, ".:53 {\n rename\n cache\n upstream a\n}\n")
		w.upstreams["a"].answer = func(q *dns.Query, _ int) error {
			sub, ok := q.SubQuery([]byte("\x01b\x07example\x03org\x00"), q.Type)
			if !ok {
				sub = q.ResumeSubQuery(t.Context())
			}
			q.Fail(sub.RCode)
			return sub.Err
		}
		start := time.Now()
		r, _ := w.ask(newQuery("a.example.org", mdns.TypeA))
		if took := time.Since(start); r.Rcode != mdns.RcodeServerFailure || took != 0 {
			t.Errorf("after %v: %v, want SERVFAIL at once", took, r)
		}
		if f := w.pendingQueries(); f != 0 {
			t.Errorf("got %d pending queries at the end, want 0", f)
		}
	})
}

// Two names that lead to each other through other zones are queried at the same time.
// Neither query waits for the other one.
func TestQueriesWaitingForEachOther(t *testing.T) {
	for _, text := range []string{
		".:53 {\n cache\n upstream a\n}\n",
		".:53 {\n cache {\n  serve_stale 1h verify 1m\n }\n upstream a\n}\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, text)
			names := []string{"a.example.org", "b.example.org"}
			w.upstreams["a"].answer = addressAnswer(5)
			if strings.Contains(text, "stale") {
				for _, name := range names {
					w.ask(newQuery(name, mdns.TypeA))
				}
				time.Sleep(time.Minute)
			}
			w.upstreams["a"].answer = func(q *dns.Query, _ int) error {
				if q.Depth() == 0 {
					time.Sleep(time.Second) // until both are here
				}
				other := []byte("\x01a\x07example\x03org\x00")
				if q.Name()[1] == 'a' {
					other[1] = 'b'
				}
				sub, ok := q.SubQuery(other, q.Type)
				if !ok {
					sub = q.ResumeSubQuery(t.Context())
				}
				q.Fail(sub.RCode)
				return sub.Err
			}
			start := time.Now()
			var clients sync.WaitGroup
			for _, name := range names {
				clients.Go(func() {
					r, _ := w.ask(newQuery(name, mdns.TypeA))
					if took := time.Since(start); took > 2*time.Second || len(r.Answer) == 0 && r.Rcode != mdns.RcodeServerFailure {
						t.Errorf("%s: got %v after %v, want SERVFAIL or a stale answer within 2 s", name, r, took)
					}
				})
			}
			clients.Wait()
			if f := w.pendingQueries(); f != 0 {
				t.Errorf("got %d pending queries at the end, want 0", f)
			}
		})
	}
}

// The refresh of an expired name whose answer needs another expired name resolves that
// one, too. It starts no further refresh: two names that lead to each other would
// otherwise refresh each other without any client until they cannot be served stale.
func TestRefreshEndsWithoutClients(t *testing.T) {
	for _, options := range []string{"serve_stale 1h", "serve_stale 1h verify 1m"} {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, ".:53 {\n cache {\n  "+options+"\n }\n upstream a\n}\n")
			u := w.upstreams["a"]
			u.answer = addressAnswer(5)
			w.ask(newQuery("a.example.org", mdns.TypeA))
			w.ask(newQuery("b.example.org", mdns.TypeA))
			time.Sleep(time.Minute)
			u.answer = func(q *dns.Query, _ int) error {
				time.Sleep(time.Second)
				other := []byte("\x01a\x07example\x03org\x00")
				if q.Name()[1] == 'a' {
					other[1] = 'b'
				}
				sub, ok := q.SubQuery(other, q.Type)
				if !ok {
					sub = q.ResumeSubQuery(t.Context())
				}
				q.Fail(sub.RCode)
				return sub.Err
			}
			if r, _ := w.ask(newQuery("a.example.org", mdns.TypeA)); len(r.Answer) == 0 {
				t.Errorf("%s: got %v, want the stale answer", options, r)
			}
			time.Sleep(time.Minute)
			u.wantQueries(t, 4) // the first two, then a and b once each
			if f := w.pendingQueries(); f != 0 {
				t.Errorf("%s: got %d pending queries at the end, want 0", options, f)
			}
		})
	}
}

// pendingQueries returns the number of pending queries.
func (w *harness) pendingQueries() int {
	st := w.caches[0].store
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.pending)
}

// A truncated answer over UDP does not answer queries over TCP.
func TestTruncatedAnswerNotSharedWithTCP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, stock)
		u := w.upstreams["a"]
		u.block = make(chan struct{})
		u.answer = func(q *dns.Query, n int) error {
			q.TC = q.Proto == dns.UDP
			return addressAnswer(300)(q, n)
		}
		ask := newQuery("www.example.org", mdns.TypeA)
		tcp := func(q *dns.Query) { q.Proto = dns.TCP }
		for range 10 {
			w.send(ask)
			w.send(ask, tcp)
		}
		synctest.Wait()
		close(u.block)
		cut := 0
		for range 20 {
			if r := <-w.sent; r.Truncated {
				cut++
			}
		}
		if cut > 10 {
			t.Errorf("%d replies are cut off, want those over UDP at most", cut)
		}
		if r, inline := w.ask(ask); !inline || r.Truncated {
			t.Errorf("query after the replies: got inline %v and\n%v\nwant an entry without TC", inline, r)
		}
	})
}

// If the leader cannot be parked, the waiting queries go on.
func TestLeaderNotParked(t *testing.T) {
	w := newHarness(t, stock)
	q := dns.NewQuery(w)
	packet, _ := newQuery("www.example.org", mdns.TypeA).Pack()
	w.load(stock)
	full := dns.NewParkingLot(0)
	mux := dns.NewMux(full, nil)
	old := w.port.Swap(mux)
	_ = mux.Route(wire.Root, w.chains[0])
	q.Reset(packet, dns.UDP, time.Now())
	if w.port.Serve(q, make([]byte, 0, 4096)) != dns.Answered || q.RCode != wire.ServFail {
		t.Errorf("code %v, want SERVFAIL", q.RCode)
	}
	if n := w.pendingQueries(); n != 0 {
		t.Errorf("got %d pending queries at the end, want 0", n)
	}
	w.port.Swap(old)
	if r, _ := w.ask(newQuery("www.example.org", mdns.TypeA)); len(r.Answer) != 1 {
		t.Errorf("query after the panic: got\n%v\nwant one record", r)
	}
}

// A client's query that times out gets SERVFAIL; the others get the answer.
func TestClientTimeoutWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, stock)
		u := w.upstreams["a"]
		u.block = make(chan struct{})
		ask := newQuery("www.example.org", mdns.TypeA)
		w.send(ask)
		synctest.Wait()
		w.local = func(q *dns.Query) dns.Verdict {
			q.Timeout = time.Second
			return dns.Next
		}
		w.send(ask)
		if r := <-w.sent; r.Rcode != mdns.RcodeServerFailure {
			t.Errorf("query with a timeout: got\n%v\nwant SERVFAIL", r)
		}
		close(u.block)
		if r := <-w.sent; len(r.Answer) != 1 {
			t.Errorf("query without a timeout: got\n%v\nwant one record", r)
		}
		u.wantQueries(t, 1)
	})
}

// A query that a handler below refuses at once is answered from the store if
// possible.
func TestRefusalAnsweredFromCache(t *testing.T) {
	w := newHarness(t, stock)
	ask := newQuery("www.example.org", mdns.TypeA)
	w.ask(ask)
	w.upstreams["a"].serve = func(q *dns.Query) dns.Verdict {
		q.Fail(wire.Refused)
		q.Err = errors.New("too many")
		return dns.Done
	}
	if r, inline := w.ask(ask); !inline || len(r.Answer) != 1 {
		t.Errorf("stored name: got inline %v and\n%v\nwant one record from the entry", inline, r)
	}
	if r, _ := w.ask(newQuery("other.example.org", mdns.TypeA)); r.Rcode != mdns.RcodeRefused {
		t.Errorf("name that is not stored: got\n%v\nwant REFUSED", r)
	}
	for name, want := range map[string]string{"requests": "3", "misses": "2"} {
		if got := w.metric(`coredns_cache_` + name + `_total{server="dns://:53",zones=".",view=""}`); got != want {
			t.Errorf("%s %s, want %s", got, name, want)
		}
	}
}

func TestExpiredWithoutServeStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, stock)
		ask := newQuery("www.example.org", mdns.TypeA)
		w.ask(ask)
		time.Sleep(300 * time.Second)
		w.upstreams["a"].answer = answerWith(wire.ServFail, "")
		for i := range 2 {
			if r, inline := w.ask(ask); r.Rcode != mdns.RcodeServerFailure || inline != (i == 1) {
				t.Errorf("query %d: got inline %v and\n%v\nwant SERVFAIL, the second time from the entry", i, inline, r)
			}
		}
	})
}

// An entry that expires while the query waits above is not used.
func TestEntryExpiresWhileQueryWaitsAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, ".:53 {\n delay\n cache\n upstream a\n}\n")
		ask := newQuery("www.example.org", mdns.TypeA)
		w.ask(ask)
		time.Sleep(297 * time.Second)
		if r, _ := w.ask(ask); r.Answer[0].Header().Ttl != 1 {
			t.Errorf("want a TTL of 1: %v", r)
		}
		w.upstreams["a"].wantQueries(t, 1)
		if r, _ := w.ask(ask); r.Answer[0].Header().Ttl != 300 {
			t.Errorf("www.example.org. A: got\n%v\nwant the new answer", r)
		}
		w.upstreams["a"].wantQueries(t, 2)
	})
}

func TestPrefetchNearExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, ".:53 {\n cache {\n prefetch 3 1m 20%\n}\n upstream a\n}\n")
		u := w.upstreams["a"]
		ask := newQuery("www.example.org", mdns.TypeA)
		w.ask(ask)
		hit := func(after time.Duration, asked int64) {
			t.Helper()
			time.Sleep(after)
			if _, inline := w.ask(ask); !inline {
				t.Error("got a parked query, want an answer from the entry")
			}
			synctest.Wait()
			u.wantQueries(t, asked)
		}
		hit(100*time.Second, 1) // the first of a streak
		hit(50*time.Second, 1)
		hit(60*time.Second, 1) // a gap: a new streak
		hit(20*time.Second, 1)
		hit(9*time.Second, 1)
		hit(1*time.Second, 2) // A fifth of the 300 s is left.
		hit(1*time.Second, 2)
		hit(50*time.Second, 2)
		hit(59*time.Second, 2)
		hit(59*time.Second, 2)
		hit(59*time.Second, 2)
		u.answer = func(*dns.Query, int) error { return errors.New("no reply") }
		hit(12*time.Second, 3)
		hit(500*time.Millisecond, 3)
		hit(500*time.Millisecond, 4) // A name is prefetched once a second until it expires.
		u.block = make(chan struct{})
		hit(1*time.Second, 5)
		hit(1*time.Second, 5) // One prefetch runs at a time.
		close(u.block)
		if got := w.metric(`coredns_cache_prefetch_total{server="dns://:53",zones=".",view=""}`); got != "4" {
			t.Errorf("%s prefetches, want 4", got)
		}
	})
}

// Names that are queried rarely are not prefetched.
func TestPrefetchRareName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, ".:53 {\n cache {\n prefetch 2\n}\n upstream a\n}\n")
		ask := newQuery("www.example.org", mdns.TypeA)
		w.ask(ask)
		time.Sleep(299 * time.Second)
		w.ask(ask)
		synctest.Wait()
		w.upstreams["a"].wantQueries(t, 1)
	})
}
