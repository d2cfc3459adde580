package cache

import (
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Answers of this server's own are not stored, and are used whatever is in the
// store. Their TTLs are clamped.
func TestLocalAnswersNotCached(t *testing.T) {
	w := newHarness(t, ".:53 {\n cache 30 {\n success 100 30 10\n denial 100 20 7\n}\n local\n upstream a\n}\n")
	w.upstreams["a"].answer = answerWith(wire.NXDomain, ";\n. 900 IN SOA a. b. 1 2 3 4 60")
	ask := newQuery("api.shop.svc.cluster.local", mdns.TypeA)
	for range 2 {
		if r, _ := w.ask(ask); r.Rcode != mdns.RcodeNameError {
			t.Fatalf("want what fell through: %v", r)
		}
	}
	w.upstreams["a"].wantQueries(t, 1)
	for _, test := range []struct{ ttl, want uint32 }{{5, 10}, {20, 20}, {90, 30}} {
		w.local = func(q *dns.Query) dns.Verdict {
			_ = addressAnswer(test.ttl)(q, 1)
			return dns.Done
		}
		r, inline := w.ask(ask)
		if !inline || len(r.Answer) != 1 || r.Answer[0].Header().Ttl != test.want {
			t.Errorf("inline %v, want a TTL of %d: %v", inline, test.want, r)
		}
	}
	for _, test := range []struct{ ttl, want uint32 }{{5, 7}, {90, 20}} {
		w.local = func(q *dns.Query) dns.Verdict {
			rr := wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeSOA, test.ttl, 22)
			q.Answer.Append(wire.Authority, append(rr, make([]byte, 22)...), 1)
			q.RCode = wire.NXDomain
			return dns.Done
		}
		if r, _ := w.ask(ask); r.Rcode != mdns.RcodeNameError || r.Ns[0].Header().Ttl != test.want {
			t.Errorf("want a TTL of %d: %v", test.want, r)
		}
	}
	w.local = func(*dns.Query) dns.Verdict { return dns.Next }
	if r, inline := w.ask(ask); !inline || r.Rcode != mdns.RcodeNameError {
		t.Errorf("want what fell through, from the store: %v", r)
	}
	w.upstreams["a"].wantQueries(t, 1)
}

// Handlers that answer at once are called for each query.
func TestLearnedAnswerWithoutWait(t *testing.T) {
	w := newHarness(t, stock)
	asked := 0
	w.local = func(q *dns.Query) dns.Verdict {
		asked++
		q.Cacheable = true
		_ = addressAnswer(300)(q, asked)
		return dns.Done
	}
	w.ask(newQuery("www.example.org", mdns.TypeA))
	w.ask(newQuery("www.example.org", mdns.TypeA))
	if asked != 2 || w.caches[0].store.bytes != 0 {
		t.Errorf("asked %d times, %d bytes kept; want 2 and 0", asked, w.caches[0].store.bytes)
	}
}

// An entry's key has the client's flags, even if a handler below changes the
// query's flags (as header does), also where a handler below refuses the query.
func TestFlagsChangedBelow(t *testing.T) {
	w := newHarness(t, stock)
	w.local = func(q *dns.Query) dns.Verdict {
		q.Flags |= wire.FlagRD
		return dns.Next
	}
	plain, recursive := newQuery("www.example.org", mdns.TypeA), newQuery("www.example.org", mdns.TypeA)
	plain.RecursionDesired = false
	for range 2 {
		w.ask(plain)
		w.ask(recursive)
	}
	w.upstreams["a"].wantQueries(t, 2)
	w.upstreams["a"].serve = func(q *dns.Query) dns.Verdict {
		q.Fail(wire.ServFail)
		q.Err = dns.LotFull
		return dns.Done
	}
	for i, m := range []*mdns.Msg{plain, recursive} {
		if r, inline := w.ask(m); !inline || len(r.Answer) != 1 || r.Answer[0].(*mdns.A).A[3] != byte(i) {
			t.Errorf("query %d: got inline %v and\n%v\nwant the address 192.0.2.%d from an entry", i, inline, r, i)
		}
	}
}

// The cache does not look up queries outside the directive's zones.
func TestZonesLimitCache(t *testing.T) {
	w := newHarness(t, ".:53 {\n cache example.org 10.0.0.0/8\n upstream a\n}\n")
	w.upstreams["a"].answer = addressAnswer(86400)
	for _, test := range []struct {
		name  string
		times int64
	}{
		{"example.org", 1}, {"a.b.Example.org", 1}, {"1.0.0.10.in-addr.arpa", 1},
		{"org", 2}, {"wwwexample.org", 2}, {"1.0.0.11.in-addr.arpa", 2},
	} {
		before := w.upstreams["a"].queries.Load()
		want := uint32(3600)
		if test.times == 2 {
			want = 86400
		}
		for range 2 {
			if r, _ := w.ask(newQuery(test.name, mdns.TypeA)); r.Answer[0].Header().Ttl != want {
				t.Errorf("want a TTL of %d: %v", want, r)
			}
		}
		w.upstreams["a"].wantQueries(t, before+test.times)
	}
	if got := w.metric(`coredns_cache_requests_total{server="dns://:53",zones="example.org.,10.in-addr.arpa.",view=""}`); got != "6" {
		t.Errorf("%s requests, want 6", got)
	}
}

func TestDisableByKind(t *testing.T) {
	for _, test := range []struct {
		option           string
		success, denials int64 // how many of two queries reach the upstream
	}{
		{"disable success", 2, 1},
		{"disable denial", 1, 2},
		{"disable success\ndisable denial", 2, 2},
		{"disable success example.org", 2, 1},
		{"disable success example.com org\ndisable denial example.net", 2, 1},
		{"disable success example.com\ndisable denial example.com", 1, 1},
		{"disable success example.com\ndisable success", 2, 1},
		{"disable success\ndisable success example.com", 2, 1},
		{"disable success example.com\ndisable success example.org", 2, 1},
		{"success 0", 2, 1},
	} {
		t.Run(test.option, func(t *testing.T) {
			w := newHarness(t, ".:53 {\n cache {\n"+test.option+"\n}\n upstream a\n}\n")
			u := w.upstreams["a"]
			for range 2 {
				w.ask(newQuery("www.example.org", mdns.TypeA))
			}
			u.wantQueries(t, test.success)
			u.answer = answerWith(wire.NXDomain, ";\n"+soa)
			for range 2 {
				w.ask(newQuery("no.example.org", mdns.TypeA))
			}
			u.wantQueries(t, test.success+test.denials)
		})
	}
}

func TestKeepTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, ".:53 {\n cache {\n keepttl\n}\n upstream a\n}\n")
		w.ask(newQuery("www.example.org", mdns.TypeA))
		time.Sleep(299 * time.Second)
		if r, inline := w.ask(newQuery("www.example.org", mdns.TypeA)); !inline || r.Answer[0].Header().Ttl != 300 {
			t.Errorf("keepttl: got inline %v and\n%v\nwant an entry with TTL 300", inline, r)
		}
		time.Sleep(time.Second)
		w.ask(newQuery("www.example.org", mdns.TypeA))
		w.upstreams["a"].wantQueries(t, 2)
	})
}

// A reload keeps entries if the block below cache is unchanged, and only then.
func TestReloadKeepsEntries(t *testing.T) {
	before := ".:53 {\n cache 60\n local\n upstream a\n}\nexample.com:53 {\n cache\n upstream c\n}\n"
	for _, test := range []struct {
		name, after, upstream string
		kept                  bool
	}{
		{"nothing changed", before, "a", true},
		{"other options of cache, another order of blocks", "example.com:53 {\n cache\n upstream c\n}\n.:53 {\n local\n upstream a\n cache 90 {\n prefetch 3\n}\n}\n", "a", true},
		{"another upstream", ".:53 {\n cache 60\n local\n upstream b\n}\n", "b", false},
		{"the same with an option", ".:53 {\n cache 60\n local\n upstream a {\n x\n}\n}\n", "a", false},
		{"one more below", ".:53 {\n cache 60\n local\n upstream a\n upstream b\n}\n", "a", false},
		{"other zones", ".:53 org:53 {\n cache 60\n local\n upstream a\n}\n", "a", false},
		{"in a view", ".:53 {\n view v\n cache 60\n local\n upstream b\n}\n.:53 {\n cache 60\n local\n upstream a\n}\n", "a", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newHarness(t, before)
			ask := newQuery("www.example.org", mdns.TypeA)
			w.ask(ask)
			store := w.caches[0].store
			w.load(test.after)
			if w.caches[0].store != store {
				t.Error("reload: got another store, want the same")
			}
			asked := w.upstream(test.upstream).queries.Load()
			_, inline := w.ask(ask)
			if inline != test.kept {
				t.Errorf("answered from the store: %v, want %v", inline, test.kept)
			}
			if !test.kept {
				w.upstream(test.upstream).wantQueries(t, asked+1)
			}
			w.load("example.com:53 {\n cache\n upstream c\n}\n") // Unused scopes are dropped.
			if n := len(store.scopes); n != 1 || store.bytes != 0 {
				t.Errorf("after the reload: got %d scopes and %d bytes, want 1 and 0", n, store.bytes)
			}
			w.load(before)
			if _, inline := w.ask(ask); inline {
				t.Error("after two reloads: got an answer from an entry, want it dropped")
			}
		})
	}
}

// A query that started under the old plan ends under the new one, whose queries
// may share its answer.
func TestReloadWithPendingQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, stock)
		w.upstreams["a"].block = make(chan struct{})
		ask := newQuery("www.example.org", mdns.TypeA)
		w.send(ask)
		w.load(stock)
		w.send(ask)
		synctest.Wait()
		close(w.upstreams["a"].block)
		for range 2 {
			if r := <-w.sent; len(r.Answer) != 1 {
				t.Errorf("got\n%v\nwant one record", r)
			}
		}
		w.upstreams["a"].wantQueries(t, 1)
		if _, inline := w.ask(ask); !inline {
			t.Error("second query: got an answer from upstream, want an entry")
		}

		w.upstreams["a"].block = make(chan struct{})
		other := newQuery("other.example.org", mdns.TypeA)
		w.send(other)
		w.load(".:53 {\n cache\n upstream b\n}\n")
		synctest.Wait()
		close(w.upstreams["a"].block)
		if r := <-w.sent; len(r.Answer) != 1 {
			t.Errorf("got\n%v\nwant one record", r)
		}
		if bytes := w.caches[0].store.bytes; bytes != 0 {
			t.Errorf("got %d bytes in the store, want 0: the scope was dropped", bytes)
		}
	})
}
