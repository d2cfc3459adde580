package cache

import (
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

const soa = "example.org. 900 IN SOA ns.example.org. host.example.org. 1 2 3 4 60\n"

// Cacheability and life of answers of an upstream.
func TestCacheability(t *testing.T) {
	for _, test := range []struct {
		name  string
		rcode wire.RCode
		text  string
		edit  func(q *dns.Query)
		life  time.Duration // zero: not stored
		kind  string        // the metric label
	}{
		{name: "records", text: "www.example.org. 300 IN A 192.0.2.1\nwww.example.org. 200 IN A 192.0.2.2", life: 200 * time.Second, kind: "success"},
		{name: "the least TTL of all sections", text: "www.example.org. 300 IN A 192.0.2.1\n;\nexample.org. 100 IN NS ns.example.org.", life: 100 * time.Second, kind: "success"},
		{name: "no TTL", text: "www.example.org. 0 IN A 192.0.2.1", life: 5 * time.Second, kind: "success"},
		{name: "a long TTL", text: "www.example.org. 86400 IN A 192.0.2.1", life: time.Hour, kind: "success"},
		{name: "aliases", text: "www.example.org. 300 IN CNAME a.example.com.\na.example.com. 70 IN A 192.0.2.1", life: 70 * time.Second, kind: "success"},
		{name: "aliases in another order", text: "A.example.com. 300 IN A 192.0.2.1\nwww.example.org. 70 IN CNAME a.Example.com.", life: 70 * time.Second, kind: "success"},
		{name: "signed", text: "www.example.org. 300 IN A 192.0.2.1\nwww.example.org. 300 IN RRSIG A 13 3 300 20300101000000 20200101000000 1 example.org. aGVsbG8=", life: 300 * time.Second, kind: "success"},

		{name: "NXDOMAIN", rcode: wire.NXDomain, text: ";\n" + soa, life: time.Minute, kind: "denial"},
		{name: "NXDOMAIN, the SOA's own TTL less", rcode: wire.NXDomain, text: ";\nexample.org. 30 IN SOA a. b. 1 2 3 4 600", life: 30 * time.Second, kind: "denial"},
		{name: "NXDOMAIN, a long MINIMUM", rcode: wire.NXDomain, text: ";\nexample.org. 86400 IN SOA a. b. 1 2 3 4 86400", life: 30 * time.Minute, kind: "denial"},
		{name: "NXDOMAIN, no MINIMUM", rcode: wire.NXDomain, text: ";\nexample.org. 86400 IN SOA a. b. 1 2 3 4 0", life: 5 * time.Second, kind: "denial"},
		{name: "NXDOMAIN behind an alias", rcode: wire.NXDomain, text: "www.example.org. 300 IN CNAME a.b.example.org.\n;\n" + soa, life: time.Minute, kind: "denial"},
		{name: "NXDOMAIN behind a short alias", rcode: wire.NXDomain, text: "www.example.org. 20 IN CNAME a.b.example.org.\n;\n" + soa, life: 20 * time.Second, kind: "denial"},
		{name: "no data", text: ";\n" + soa, life: time.Minute, kind: "denial"},
		{name: "no data behind an alias", text: "www.example.org. 300 IN CNAME a.example.com.\n;\nexample.com. 90 IN SOA a. b. 1 2 3 4 600", life: 90 * time.Second, kind: "denial"},
		{name: "the root's own", rcode: wire.NXDomain, text: ";\n. 86400 IN SOA a. b. 1 2 3 4 300", life: 5 * time.Minute, kind: "denial"},
		{name: "SERVFAIL", rcode: wire.ServFail, life: 5 * time.Second, kind: "denial"},

		{name: "NXDOMAIN without SOA", rcode: wire.NXDomain},
		{name: "no data without SOA", text: ""},
		{name: "an alias to nothing, without SOA", text: "www.example.org. 300 IN CNAME a.example.com."},
		{name: "a referral", text: ";\nexample.org. 300 IN NS ns.example.org."},
		{name: "NXDOMAIN with the SOA of another zone", rcode: wire.NXDomain, text: ";\nexample.com. 300 IN SOA a. b. 1 2 3 4 60"},
		{name: "NXDOMAIN with the SOA of the alias' zone alone", rcode: wire.NXDomain, text: "www.example.org. 300 IN CNAME a.example.com.\n;\n" + soa},
		{name: "NXDOMAIN with records", rcode: wire.NXDomain, text: "www.example.org. 300 IN A 192.0.2.1\n;\n" + soa},
		{name: "REFUSED", rcode: wire.Refused},
		{name: "NOTIMP", rcode: wire.NotImp, life: 5 * time.Second, kind: "denial"},
		{name: "YXDOMAIN", rcode: wire.YXDomain},
		{name: "cut off", text: "www.example.org. 300 IN A 192.0.2.1", edit: func(q *dns.Query) { q.TC = true }},
		{name: "SERVFAIL, cut off", rcode: wire.ServFail, edit: func(q *dns.Query) { q.TC = true }},
		{name: "another name", text: "www.example.com. 300 IN A 192.0.2.1"},
		{name: "another name beside", text: "www.example.org. 300 IN A 192.0.2.1\nwww.example.com. 300 IN A 192.0.2.1"},
		{name: "another type beside", text: "www.example.org. 300 IN A 192.0.2.1\nwww.example.org. 300 IN TXT x"},
		{name: "an alias of another name", text: "www.example.com. 300 IN CNAME www.example.org.\nwww.example.org. 300 IN A 192.0.2.1"},
		{name: "two aliases", text: "www.example.org. 300 IN CNAME a.example.com.\nwww.example.org. 300 IN CNAME b.example.com.\na.example.com. 300 IN A 192.0.2.1"},
		{name: "a loop", text: "www.example.org. 300 IN CNAME a.example.com.\na.example.com. 300 IN CNAME www.example.org.\nwww.example.org. 300 IN A 192.0.2.1"},
		{name: "this server's own", text: "www.example.org. 300 IN A 192.0.2.1", edit: func(q *dns.Query) { q.Cacheable = false }},
		{name: "this server's own SERVFAIL", rcode: wire.ServFail, edit: func(q *dns.Query) { q.Cacheable = false }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHarness(t, stock)
				u := w.upstreams["a"]
				u.answer = func(q *dns.Query, n int) error {
					err := write(q, test.rcode, test.text)
					if test.edit != nil {
						test.edit(q)
					}
					return err
				}
				ask := newQuery("www.example.org", mdns.TypeA)
				first, _ := w.ask(ask)
				if first.Rcode != int(test.rcode) {
					t.Fatalf("first query: got\n%v\nwant the response code %v", first, test.rcode)
				}
				if test.life == 0 {
					w.ask(ask)
					u.wantQueries(t, 2)
					return
				}
				if got := w.metric(`coredns_cache_entries{server="dns://:53",type="` + test.kind + `",zones=".",view=""}`); got != "1" {
					t.Errorf("got %s entries of type %s, want 1", got, test.kind)
				}
				time.Sleep(test.life - time.Millisecond)
				again, inline := w.ask(ask)
				u.wantQueries(t, 1)
				if !inline || again.Rcode != first.Rcode || len(again.Answer) != len(first.Answer) || len(again.Ns) != len(first.Ns) {
					t.Errorf("second query: got inline %v and\n%v\nwant, from the entry,\n%v", inline, again, first)
				}
				for _, rr := range append(again.Answer, again.Ns...) {
					if ttl := time.Duration(rr.Header().Ttl) * time.Second; test.kind == "denial" && ttl > test.life || ttl == 0 {
						t.Errorf("second query: got TTL %v, want more than 0 and, if negative, at most %v\n%v", ttl, test.life, again)
					}
				}
				time.Sleep(time.Millisecond)
				w.ask(ask)
				u.wantQueries(t, 2)
			})
		})
	}
}

// The SOA record's TTL is lowered to the denial's (RFC 2308 §5).
func TestDenialTTL(t *testing.T) {
	w := newHarness(t, stock)
	w.upstreams["a"].answer = answerWith(wire.NXDomain, ";\n"+soa)
	for range 2 {
		r, _ := w.ask(newQuery("www.example.org", mdns.TypeA))
		if len(r.Ns) != 1 || r.Ns[0].Header().Ttl != 60 {
			t.Errorf("want a TTL of 60: %v", r)
		}
	}
	w.upstreams["a"].wantQueries(t, 1)
}

func TestServfailZeroDisables(t *testing.T) {
	for _, text := range []string{"servfail 0s", "disable denial", "denial 0"} {
		w := newHarness(t, ".:53 {\n cache {\n"+text+"\n}\nupstream a\n}\n")
		w.upstreams["a"].answer = answerWith(wire.ServFail, "")
		w.ask(newQuery("www.example.org", mdns.TypeA))
		w.ask(newQuery("www.example.org", mdns.TypeA))
		w.upstreams["a"].wantQueries(t, 2)
	}
}

// Answers to ANY have records of any type.
func TestANYQueries(t *testing.T) {
	w := newHarness(t, stock)
	w.upstreams["a"].answer = answerWith(wire.NoError, "www.example.org. 300 IN A 192.0.2.1\nwww.example.org. 300 IN TXT x")
	w.ask(newQuery("www.example.org", mdns.TypeANY))
	w.ask(newQuery("www.example.org", mdns.TypeANY))
	w.upstreams["a"].wantQueries(t, 1)
}

// Transfers and other meta types are passed through.
func TestMetaTypesNotCached(t *testing.T) {
	w := newHarness(t, stock)
	for _, qtype := range []uint16{mdns.TypeTKEY, mdns.TypeTSIG, mdns.TypeIXFR, mdns.TypeAXFR} {
		w.upstreams["a"].answer = answerWith(wire.NXDomain, ";\n"+soa)
		w.ask(newQuery("www.example.org", qtype))
		w.ask(newQuery("www.example.org", qtype))
	}
	w.upstreams["a"].wantQueries(t, 8)
}
