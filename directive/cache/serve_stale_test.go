package cache

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

const staleFile = ".:53 {\n cache {\n serve_stale "

// See CVE-2026-56444 in docs/reference/advisories.md.
func TestServeStaleImmediate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, staleFile+"30m immediate 7s 20s\n}\n upstream a\n}\n")
		u := w.upstreams["a"]
		ask := withOptions(newQuery("www.example.org", mdns.TypeA), false)
		gone := withOptions(newQuery("no.example.org", mdns.TypeA), false)
		w.ask(ask)
		u.answer = answerWith(wire.NXDomain, ";\n"+soa)
		w.ask(gone)
		u.answer = func(*dns.Query, int) error { return errors.New("no reply") }
		time.Sleep(301 * time.Second)
		stale := func(m *mdns.Msg, rcode int, code uint16) {
			t.Helper()
			r, inline := w.ask(m)
			if !inline || r.Rcode != rcode {
				t.Fatalf("stale answer: got inline %v and\n%v\nwant %s from the entry", inline, r, mdns.RcodeToString[rcode])
			}
			for _, rr := range append(r.Answer, r.Ns...) {
				if rr.Header().Ttl != 7 {
					t.Errorf("want a TTL of 7: %v", rr)
				}
			}
			if o := r.IsEdns0().Option; len(o) != 1 || o[0].(*mdns.EDNS0_EDE).InfoCode != code {
				t.Errorf("options %v, want the extended error %d", o, code)
			}
			synctest.Wait()
		}
		stale(ask, mdns.RcodeSuccess, mdns.ExtendedErrorCodeStaleAnswer)
		stale(gone, mdns.RcodeNameError, mdns.ExtendedErrorCodeStaleNXDOMAINAnswer)
		u.wantQueries(t, 4) // Each entry was refreshed.
		time.Sleep(19 * time.Second)
		stale(ask, mdns.RcodeSuccess, mdns.ExtendedErrorCodeStaleAnswer)
		u.wantQueries(t, 4) // No entry was refreshed yet.
		time.Sleep(time.Second)
		stale(ask, mdns.RcodeSuccess, mdns.ExtendedErrorCodeStaleAnswer)
		u.wantQueries(t, 5)
		if got := w.metric(`coredns_cache_served_stale_total{server="dns://:53",zones=".",view=""}`); got != "4" {
			t.Errorf("%s stale answers, want 4", got)
		}
		if got := w.metric(`coredns_cache_prefetch_total{server="dns://:53",zones=".",view=""}`); got != "3" {
			t.Errorf("%s times asked anew, want 3", got)
		}

		// SERVFAIL from the upstream does not hide a stale answer either.
		u.answer = answerWith(wire.ServFail, "")
		time.Sleep(20 * time.Second)
		stale(ask, mdns.RcodeSuccess, mdns.ExtendedErrorCodeStaleAnswer)
		stale(ask, mdns.RcodeSuccess, mdns.ExtendedErrorCodeStaleAnswer)
		u.wantQueries(t, 6)

		u.answer = addressAnswer(300)
		time.Sleep(20 * time.Second)
		stale(ask, mdns.RcodeSuccess, mdns.ExtendedErrorCodeStaleAnswer)
		if r, inline := w.ask(ask); !inline || r.Answer[0].Header().Ttl != 300 || len(r.IsEdns0().Option) != 0 {
			t.Errorf("www.example.org. A: inline %v, got\n%v\nwant the new answer", inline, r)
		}

		u.answer = func(*dns.Query, int) error { return errors.New("no reply") }
		time.Sleep(300*time.Second + 30*time.Minute)
		if r, inline := w.ask(ask); inline || r.Rcode != mdns.RcodeServerFailure {
			t.Errorf("want nothing so old, inline %v: %v", inline, r)
		}
	})
}

func TestServeStaleVerify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, staleFile+"1h verify 1s 0s 10s\n}\n upstream a\n}\n")
		u := w.upstreams["a"]
		ask := newQuery("www.example.org", mdns.TypeA)
		w.ask(ask)
		time.Sleep(300 * time.Second)

		r, inline := w.ask(ask)
		if inline || r.Answer[0].Header().Ttl != 300 {
			t.Errorf("www.example.org. A: inline %v, got\n%v\nwant the new answer", inline, r)
		}
		u.wantQueries(t, 2)
		time.Sleep(300 * time.Second)

		// Without an answer in time all clients get the stale answer, and one query is
		// sent.
		u.block = make(chan struct{})
		before := time.Now()
		for range 50 {
			w.send(ask)
		}
		for range 50 {
			if r := <-w.sent; len(r.Answer) != 1 || r.Answer[0].Header().Ttl != 0 {
				t.Errorf("want a stale answer: %v", r)
			}
		}
		if took := time.Since(before); took != time.Second {
			t.Errorf("got the answers after %v, want 1s", took)
		}
		u.wantQueries(t, 3)
		close(u.block) // a late answer is stored
		synctest.Wait()
		u.block = nil
		if r, inline := w.ask(ask); !inline || r.Answer[0].Header().Ttl != 300 {
			t.Errorf("want what came late, inline %v: %v", inline, r)
		}

		// A failure does not replace the stale answer and is not retried at once.
		time.Sleep(300 * time.Second)
		for _, answer := range []func(q *dns.Query, n int) error{
			answerWith(wire.ServFail, ""), answerWith(wire.Refused, ""), func(*dns.Query, int) error { return errors.New("no reply") },
		} {
			u.answer = answer
			for i := range 2 {
				if r, inline := w.ask(ask); len(r.Answer) != 1 || r.Answer[0].Header().Ttl != 0 || inline != (i == 1) {
					t.Errorf("want a stale answer, inline %v: %v", inline, r)
				}
			}
			time.Sleep(10 * time.Second)
		}
		u.wantQueries(t, 6)

		// NXDOMAIN replaces the stale answer.
		u.answer = answerWith(wire.NXDomain, ";\n"+soa)
		if r, _ := w.ask(ask); r.Rcode != mdns.RcodeNameError {
			t.Errorf("www.example.org. A: got\n%v\nwant the new answer", r)
		}
	})
}

// Without a timeout a client waits until the refresh fails.
func TestServeStaleVerifyWithoutTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, staleFile+"verify\n}\n upstream a\n}\n")
		ask := newQuery("www.example.org", mdns.TypeA)
		w.ask(ask)
		time.Sleep(300 * time.Second)
		w.upstreams["a"].answer = func(*dns.Query, int) error {
			time.Sleep(4 * time.Second)
			return errors.New("no reply")
		}
		before := time.Now()
		if r, _ := w.ask(ask); len(r.Answer) != 1 || time.Since(before) != 4*time.Second {
			t.Errorf("got after %v\n%v\nwant a stale answer after 4s", time.Since(before), r)
		}
	})
}

// A denial replaces older records, unless the policy is prefer_positive.
func TestPreferPositiveImmediate(t *testing.T) {
	for _, test := range []struct {
		policy string
		want   int
	}{{"", mdns.RcodeNameError}, {"serve_stale_policy prefer_positive\n", mdns.RcodeSuccess}} {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, staleFile+"1h\n"+test.policy+"}\n upstream a\n}\n")
			ask := newQuery("www.example.org", mdns.TypeA)
			w.ask(ask)
			w.upstreams["a"].answer = answerWith(wire.NXDomain, ";\n"+soa)
			time.Sleep(300 * time.Second)
			w.ask(ask)
			synctest.Wait()
			for range 3 {
				if r, inline := w.ask(ask); !inline || r.Rcode != test.want {
					t.Errorf("policy %q: got inline %v and\n%v\nwant %s from the entry", test.policy, inline, r, mdns.RcodeToString[test.want])
				}
			}
			synctest.Wait()
			w.upstreams["a"].wantQueries(t, 2)
		})
	}
}

// With prefer_positive the answer of a refresh that has no records of the queried
// type does not replace an expired positive answer, also when it is verified.
func TestPreferPositiveVerify(t *testing.T) {
	for _, refreshed := range []struct {
		name   string
		answer func(q *dns.Query, n int) error
	}{
		{"NXDOMAIN", answerWith(wire.NXDomain, ";\n"+soa)},
		{"NODATA", answerWith(wire.NoError, ";\n"+soa)},
		{"NODATA without SOA record", answerWith(wire.NoError, "")},
		{"dangling CNAME", answerWith(wire.NoError, "www.example.org. 300 IN CNAME gone.example.org.\n;\n"+soa)},
		{"dangling CNAME without SOA record", answerWith(wire.NoError, "www.example.org. 300 IN CNAME gone.example.org.")},
	} {
		t.Run(refreshed.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHarness(t, staleFile+"1h verify\n serve_stale_policy prefer_positive\n}\n upstream a\n}\n")
				query := newQuery("www.example.org", mdns.TypeA)
				w.ask(query)
				w.upstreams["a"].answer = refreshed.answer
				for range 3 {
					time.Sleep(300 * time.Second)
					r, _ := w.ask(query)
					if r.Rcode != mdns.RcodeSuccess || len(r.Answer) != 1 || r.Answer[0].Header().Rrtype != mdns.TypeA || r.Answer[0].Header().Ttl != 0 {
						t.Errorf("%v after a refresh with %s: got %v, want the expired A record", query.Question, refreshed.name, r)
					}
				}
				w.upstreams["a"].answer = addressAnswer(300)
				time.Sleep(10 * time.Second)
				if r, _ := w.ask(query); len(r.Answer) != 1 || r.Answer[0].Header().Ttl != 300 {
					t.Errorf("%v after a refresh with an A record: got %v, want the new record", query.Question, r)
				}
			})
		})
	}
}

// An expired entry is not given after a newer answer, also if that may not be stored. It is after a failure, after a
// part of an answer, after one that may be a lame server's and, with prefer_positive, if it alone has records of the
// queried type.
func TestServeStaleNotAfterNewerAnswer(t *testing.T) {
	denied := answerWith(wire.NXDomain, ";\n"+soa)
	truncated := func(q *dns.Query, n int) error { q.TC = true; return addressAnswer(300)(q, n) }
	for _, test := range []struct {
		name, options     string
		expired, newer    func(q *dns.Query, n int) error
		removed, positive bool // without and with prefer_positive
	}{
		{"NXDOMAIN without SOA record", "", addressAnswer(300), answerWith(wire.NXDomain, ""), true, false},
		{"CNAME without SOA record", "", addressAnswer(300), answerWith(wire.NoError, "www.example.org. 300 IN CNAME gone.example.org."), true, false},
		{"empty answer", "", addressAnswer(300), answerWith(wire.NoError, ""), false, false},
		{"referral up", "", addressAnswer(300), answerWith(wire.NoError, ";\n. 300 IN NS a.root-servers.net."), false, false},
		{"referral down", "", addressAnswer(300), answerWith(wire.NoError, ";\nexample.org. 300 IN NS ns.example.org."), false, false},
		{"foreign record", "", addressAnswer(300), answerWith(wire.NoError, "other.example.org. 300 IN A 192.0.2.9"), false, false},
		{"NXDOMAIN with disable", "disable denial", addressAnswer(300), denied, true, false},
		{"NXDOMAIN without room", "denial 0", addressAnswer(300), denied, true, false},
		{"NXDOMAIN after NXDOMAIN", "", denied, answerWith(wire.NXDomain, ""), true, true},
		{"TTL 0", "success 1024 3600 0", addressAnswer(300), addressAnswer(0), true, true},
		{"records without room", "success 0", denied, addressAnswer(300), true, true},
		{"records with disable", "disable success", denied, addressAnswer(300), true, true},
		{"SERVFAIL", "", addressAnswer(300), answerWith(wire.ServFail, ""), false, false},
		{"REFUSED", "", addressAnswer(300), answerWith(wire.Refused, ""), false, false},
		{"truncated", "", addressAnswer(300), truncated, false, false},
	} {
		for _, mode := range []string{"immediate", "verify"} {
			for policy, removed := range map[string]bool{"": test.removed, "serve_stale_policy prefer_positive": test.positive} {
				t.Run(test.name+" "+mode+" "+policy, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newHarness(t, staleFile+"1h "+mode+"\n"+policy+"\n"+test.options+"\n}\n upstream a\n}\n")
						u := w.upstreams["a"]
						query := newQuery("www.example.org", mdns.TypeA)
						u.answer = test.expired
						old, _ := w.ask(query)
						time.Sleep(300 * time.Second)
						u.answer = test.newer
						w.ask(query)
						synctest.Wait()
						u.answer = func(*dns.Query, int) error { return errors.New("no reply") }
						time.Sleep(10 * time.Second)
						r, _ := w.ask(query)
						synctest.Wait()
						u.wantQueries(t, 3)
						if stale := r.Rcode == old.Rcode && len(r.Answer) == len(old.Answer); stale == removed {
							t.Errorf("%v after the newer answer: got\n%v\nwant the expired entry %v", query.Question, r, !removed)
						}
					})
				})
			}
		}
	}
}

// An expired entry is not given after a newer answer for which there is no memory.
func TestServeStaleNotAfterLargeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, staleFile+"1h\n}\n upstream a\n}\n")
		u := w.upstreams["a"]
		query := newQuery("www.example.org", mdns.TypeA)
		w.ask(query)
		time.Sleep(300 * time.Second)
		w.caches[0].scope.memory = 1
		w.ask(query)
		synctest.Wait()
		if r, inline := w.ask(query); inline || len(r.Answer) != 1 || r.Answer[0].Header().Ttl != 300 {
			t.Errorf("%v after the newer answer: got inline %v and\n%v\nwant one of the upstream", query.Question, inline, r)
		}
		u.wantQueries(t, 3)
	})
}

// A fresh entry stays when it is refreshed early and the newer answer may not be stored.
func TestPrefetchKeepsFreshEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, ".:53 {\n cache {\n prefetch 1 1h 50%\n}\n upstream a\n}\n")
		u := w.upstreams["a"]
		query := newQuery("www.example.org", mdns.TypeA)
		w.ask(query)
		u.answer = answerWith(wire.NXDomain, "")
		for range 2 {
			time.Sleep(140 * time.Second)
			w.ask(query)
			synctest.Wait()
		}
		u.wantQueries(t, 2)
		if r, inline := w.ask(query); !inline || len(r.Answer) != 1 {
			t.Errorf("%v: got inline %v and\n%v\nwant the fresh entry", query.Question, inline, r)
		}
		time.Sleep(20 * time.Second)
		if r, _ := w.ask(query); r.Rcode != mdns.RcodeNameError {
			t.Errorf("%v after the entry has expired: got\n%v\nwant NXDOMAIN", query.Question, r)
		}
	})
}

// A query for which there is no place to wait gets the stale answer that it would verify. Without an entry it is
// SERVFAIL, also if it would wait for an equal one.
func TestServeStaleVerifyWithoutPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, staleFile+"1h verify\n}\n upstream a\n}\n")
		full := false
		w.lots[0].Room = func(places int64) int64 {
			if full {
				return 0
			}
			return places
		}
		u := w.upstreams["a"]
		known, unknown := withOptions(newQuery("www.example.org", mdns.TypeA), false), newQuery("new.example.org", mdns.TypeA)
		w.ask(known)
		time.Sleep(300 * time.Second)
		u.block = make(chan struct{})
		w.send(unknown) // waits

		full = true
		for range 2 {
			r, inline := w.ask(known)
			if !inline || len(r.Answer) != 1 || r.Answer[0].Header().Ttl != 0 {
				t.Fatalf("%v: got inline %v and\n%v\nwant the stale answer", known.Question, inline, r)
			}
			if o := r.IsEdns0().Option; len(o) != 1 || o[0].(*mdns.EDNS0_EDE).InfoCode != mdns.ExtendedErrorCodeStaleAnswer {
				t.Errorf("%v: got options %v, want the extended error of a stale answer", known.Question, o)
			}
			if r, inline := w.ask(unknown); !inline || r.Rcode != mdns.RcodeServerFailure {
				t.Errorf("%v: got inline %v and\n%v\nwant SERVFAIL", unknown.Question, inline, r)
			}
		}
		if got := w.metric(`coredns_cache_served_stale_total{server="dns://:53",zones=".",view=""}`); got != "2" {
			t.Errorf("got %s stale answers, want 2", got)
		}

		full = false
		close(u.block)
		if r := <-w.sent; len(r.Answer) != 1 {
			t.Errorf("%v, which waited: got\n%v\nwant one record", unknown.Question, r)
		}
		if r, inline := w.ask(known); inline || len(r.Answer) != 1 || r.Answer[0].Header().Ttl != 300 {
			t.Errorf("%v with room again: got inline %v and\n%v\nwant the new answer", known.Question, inline, r)
		}
		u.wantQueries(t, 3)
	})
}
