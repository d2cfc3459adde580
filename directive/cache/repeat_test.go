package cache

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// A hit may be repeated until its entry expires or is due for a refresh, and not while
// prefetch counts hits. An expired entry may not.
func TestRepeatFor(t *testing.T) {
	type hit struct {
		after, want time.Duration
	}
	for _, c := range []struct {
		options string
		ttl     uint32
		hits    []hit
	}{
		{"", 5, []hit{{0, 5 * time.Second}, {3900 * time.Millisecond, 1100 * time.Millisecond}, {600 * time.Millisecond, time.Second / 2}}},
		{"keepttl\n", 5, []hit{{4500 * time.Millisecond, time.Second / 2}}},
		{"serve_stale 1h\n", 5, []hit{{0, 5 * time.Second}, {5 * time.Second, 0}}},
		{"prefetch 3 1m 20%\n", 10, []hit{
			{0, 0}, {0, 0}, {0, 8 * time.Second}, {7500 * time.Millisecond, time.Second / 2}, {600 * time.Millisecond, 1900 * time.Millisecond},
		}},
		{"prefetch 2 30s\n", 100, []hit{{0, 0}, {0, 15 * time.Second}, {31 * time.Second, 0}, {0, 15 * time.Second}}}, // a gap
		{"prefetch 2 500ms\n", 100, []hit{{0, 0}, {0, time.Second / 4}}},
	} {
		t.Run(fmt.Sprintf("%q", c.options), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHarness(t, ".:53 {\n cache {\n"+c.options+"}\n upstream a\n}\n")
				w.upstreams["a"].answer = addressAnswer(c.ttl)
				ask := newQuery("www.example.org", mdns.TypeA)
				w.ask(ask)
				for i, h := range c.hits {
					synctest.Wait()
					time.Sleep(h.after)
					w.repeats.take()
					if w.send(ask) == nil {
						t.Fatalf("hit %d: got a parked query, want an answer from the entry", i)
					}
					if got, _ := w.repeats.take(); got.Allowed.For != h.want {
						t.Errorf("hit %d: got %s, want %s", i, got.Allowed.For, h.want)
					}
				}
			})
		})
	}
}

// The answer to a miss may be repeated as the hits after it, also that of a query that waited for it: it is
// the same. It may not if it is not stored, differs, or if prefetch counts hits.
func TestRepeatNew(t *testing.T) {
	type answer func(q *dns.Query, n int) error
	with := func(change func(q *dns.Query)) answer {
		return func(q *dns.Query, n int) error {
			change(q)
			return addressAnswer(5)(q, n)
		}
	}
	second := time.Second
	for name, c := range map[string]struct {
		options string
		answer  answer
		kept    int // of a miss, and of a query that waits for it
		tick    time.Duration
	}{
		"stored":       {"", addressAnswer(5), 2, second},
		"keepttl":      {"keepttl\n", addressAnswer(5), 2, 0},
		"serve_stale":  {"serve_stale 1h verify\n", addressAnswer(5), 2, second},
		"explained":    {"", with(func(q *dns.Query) { q.AddExtendedError(wire.EDEStale, "") }), 2, second},
		"an option":    {"", with(func(q *dns.Query) { q.AddReplyOption(65001, []byte("a")) }), 1, second}, // the waiting query's has none
		"truncated":    {"", with(func(q *dns.Query) { q.TC = true }), 0, 0},
		"zero TTL":     {"success 0\n", addressAnswer(0), 0, 0},
		"not stored":   {"disable success\n", addressAnswer(5), 0, 0},
		"prefetch":     {"prefetch 1\n", addressAnswer(5), 0, 0},
		"a failure":    {"", func(*dns.Query, int) error { return errors.New("no upstream") }, 0, 0},
		"not cachable": {"", with(func(q *dns.Query) { q.Cacheable = false }), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHarness(t, ".:53 {\n cache {\n"+c.options+"}\n upstream a\n}\n")
				w.upstreams["a"].answer = func(q *dns.Query, n int) error {
					time.Sleep(2300 * time.Millisecond)
					return c.answer(q, n)
				}
				ask := newQuery("www.example.org", mdns.TypeA).SetEdns0(1232, false)
				w.send(ask)
				time.Sleep(100 * time.Millisecond)
				w.send(ask)
				replies := [2]*mdns.Msg{<-w.sent, <-w.sent}
				synctest.Wait()
				last, n := w.repeats.take()
				if n != c.kept {
					t.Fatalf("got %d replies that may be repeated, want %d", n, c.kept)
				}
				if n == 0 {
					return
				}
				if last.Allowed.For != 5*second || last.Allowed.Tick != c.tick || !w.generations.Current(last.Allowed.While) {
					t.Errorf("got %+v, want 5s with the tick %s, and a current Stamp", last.Allowed, c.tick)
				}

				time.Sleep(900 * time.Millisecond)
				hit := w.send(ask)
				for _, r := range replies {
					if n == 2 && r.String() != hit.String() {
						t.Errorf("got\n%v\nand from the entry\n%v", r, hit)
					}
				}
			})
		})
	}
}

// Repeated replies count as hits of the same kind as those that the Cache sees.
func TestCountRepeats(t *testing.T) {
	const soa = ";\nexample.org. 300 IN SOA ns.example.org. admin.example.org. 1 2 3 4 300"
	for name, c := range map[string]struct {
		rcode wire.RCode
		text  string
		want  string
	}{
		"success":              {wire.NoError, "www.example.org. 300 IN A 192.0.2.1", "success"},
		"NXDOMAIN":             {wire.NXDomain, soa, "denial"},
		"NODATA":               {wire.NoError, soa, "denial"},
		"NODATA after a CNAME": {wire.NoError, "www.example.org. 300 IN CNAME b.example.org.\n" + soa, "denial"},
		"SERVFAIL":             {wire.ServFail, "", "denial"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHarness(t, ".:53 {\n cache\n upstream a\n}\n")
				w.upstreams["a"].answer = answerWith(c.rcode, c.text)
				ask := newQuery("www.example.org", mdns.TypeA)
				w.ask(ask)
				synctest.Wait()
				miss, _ := w.repeats.take()
				w.send(ask)
				hit, _ := w.repeats.take()
				if miss.Allowed.For == 0 || hit.Allowed.For == 0 || miss.Step != hit.Step {
					t.Fatalf("got %+v and %+v, want replies that may be repeated, of one directive", miss, hit)
				}
				miss.Count(100)
				hit.Count(10)
				for _, kind := range []string{"success", "denial"} {
					want := "0"
					if kind == c.want {
						want = "111"
					}
					if got := w.metric(`coredns_cache_hits_total{server="dns://:53",type="` + kind + `",zones=".",view=""}`); got != want {
						t.Errorf("hits of the type %s: got %s, want %s", kind, got, want)
					}
				}
			})
		})
	}
}

// The TTLs of a hit decrease as if the Cache answered each query: whole seconds after the answer was stored.
func TestRepeatTick(t *testing.T) {
	for options, want := range map[string][]time.Duration{
		"":          {time.Second, 700 * time.Millisecond, 900 * time.Millisecond},
		"keepttl\n": {0, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, ".:53 {\n cache {\n"+options+"}\n upstream a\n}\n")
			ask := newQuery("www.example.org", mdns.TypeA)
			w.ask(ask)
			synctest.Wait()
			for i, after := range []time.Duration{0, 300 * time.Millisecond, 1800 * time.Millisecond} {
				time.Sleep(after)
				w.send(ask)
				if got, _ := w.repeats.take(); got.Allowed.Tick != want[i] {
					t.Errorf("%q, hit %d: got the tick %s, want %s", options, i, got.Allowed.Tick, want[i])
				}
			}
		})
	}
}

// The repetition of a hit ends with the entry: when it is flushed, or a refresh or an answer of another kind
// replaces it. Others, and expired entries, do not end it.
func TestRepeatUntilReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, ".:53 {\n cache {\n prefetch 1 1h 50%\n}\n upstream a\n}\n")
		w.upstreams["a"].answer = addressAnswer(100)
		ask := newQuery("www.example.org", mdns.TypeA)
		var stamp generation.Stamp // of the last hit
		check := func(when string, want bool) {
			t.Helper()
			if got := w.generations.Current(stamp); got != want {
				t.Errorf("%s: the Stamp is current: got %t, want %t", when, got, want)
			}
		}
		hit := func() {
			t.Helper()
			w.ask(ask)
			synctest.Wait()
			w.repeats.take()
			w.ask(ask)
			last, _ := w.repeats.take()
			if stamp = last.Allowed.While; stamp == (generation.Stamp{}) {
				t.Fatal("got a hit without a Stamp")
			}
		}
		hit()
		check("after a hit", true)
		w.ask(newQuery("other.example.org", mdns.TypeA))
		check("after another name", true)
		w.caches[0].Flush(chaintest.Name("other.example.org."))
		check("after a flush of another name", true)
		w.caches[0].Flush(chaintest.Name("example.org."))
		check("after a flush", false)

		hit()
		time.Sleep(60 * time.Second) // a refresh is due
		w.ask(ask)
		synctest.Wait()
		check("after a refresh", false)
		hit()
		check("after a hit of the refreshed entry", true)

		// An evicted entry's answer is repeated until there is another one.
		c := w.caches[0]
		c.store.mu.Lock()
		for e := range c.entries() {
			c.store.remove(e)
		}
		c.store.mu.Unlock()
		check("after the eviction", true)
		w.upstreams["a"].answer = func(q *dns.Query, n int) error {
			if w.generations.Current(stamp) {
				t.Error("while the upstream is queried, the Stamp of the evicted entry is current")
			}
			return addressAnswer(100)(q, n)
		}
		w.ask(ask)
	})
}
