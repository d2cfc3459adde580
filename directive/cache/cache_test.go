package cache

import (
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"
)

const stock = ".:53 {\n cache\n local\n upstream a\n}\n"

func TestHitAfterMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, stock)
		r, inline := w.ask(newQuery("Example.org", mdns.TypeA))
		if inline || r.Answer[0].Header().Ttl != 300 {
			t.Errorf("first query: got inline %v and\n%v\nwant the upstream's answer with TTL 300", inline, r)
		}
		time.Sleep(7500 * time.Millisecond)
		r, inline = w.ask(newQuery("eXample.org", mdns.TypeA))
		if !inline || r.Answer[0].Header().Ttl != 293 || r.Answer[0].Header().Name != "eXample.org." || !r.RecursionAvailable {
			t.Errorf("second query: got inline %v and\n%v\nwant an entry with TTL 293 and the owner name eXample.org.", inline, r)
		}
		w.upstreams["a"].wantQueries(t, 1)
		time.Sleep(293 * time.Second)
		w.ask(newQuery("example.org", mdns.TypeA))
		w.upstreams["a"].wantQueries(t, 2)
	})
}
