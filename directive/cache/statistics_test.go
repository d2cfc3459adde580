package cache

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// checkStatistics checks the results of Statistics.
func (c *Cache) checkStatistics(t *testing.T, capacity int, inserted, evicted uint64) {
	t.Helper()
	if n, in, out := c.Statistics(); n != capacity || in != inserted || out != evicted {
		t.Errorf("%d entries may be, %d came, %d had to go; want %d, %d, %d", n, in, out, capacity, inserted, evicted)
	}
}

// Expired entries that make room do not count as evicted.
func TestStatistics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = ".:53 {\n cache {\n success 10\n denial 7\n}\n upstream a\n}\n"
		w := newHarness(t, text)
		ask := func(kind string, n int) {
			for i := range n {
				w.ask(newQuery(fmt.Sprintf("%s%d.example.org", kind, i), mdns.TypeA))
			}
		}
		w.caches[0].checkStatistics(t, 17, 0, 0)
		ask("early", 30)
		w.caches[0].checkStatistics(t, 17, 30, 20)
		w.load(text)
		time.Sleep(301 * time.Second)
		ask("late", 10)
		w.caches[0].checkStatistics(t, 17, 40, 20)
		ask("late", 10) // The answer is from the store.
		w.caches[0].checkStatistics(t, 17, 40, 20)
		w.upstreams["a"].answer = answerWith(wire.NXDomain, ";\n"+soa)
		ask("no", 9)
		w.caches[0].checkStatistics(t, 17, 49, 22)
		w.upstreams["a"].answer = answerWith(wire.Refused, "") // The answer is not stored.
		ask("refused", 1)
		w.caches[0].checkStatistics(t, 17, 49, 22)
	})
}

// An answerObserver records which handler answered.
type answerObserver struct {
	cache    *Cache
	answered chan string
}

func (w *answerObserver) ObserveDNS(q *dns.Query) {
	step, kept := w.cache.Answered(q)
	if kept {
		w.answered <- "kept"
	} else {
		w.answered <- q.Chain().Steps()[step].Name
	}
}

func TestAnsweredStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, ".:53 {\n cache {\n serve_stale 1h verify\n}\n local\n upstream a\n}\n")
		u, see := w.upstreams["a"], &answerObserver{w.caches[0], make(chan string, 10)}
		w.chains[0].Observe(see)
		wants := func(what, want string) {
			t.Helper()
			if got := <-see.answered; got != want {
				t.Errorf("%s: the answer is %s's, want %s's", what, got, want)
			}
		}
		ask := newQuery("www.example.org", mdns.TypeA)
		u.block = make(chan struct{})
		for range 3 {
			w.send(ask)
		}
		synctest.Wait()
		close(u.block)
		for range 3 {
			<-w.sent
			wants("the leader and the waiting queries", "upstream")
		}
		u.block = nil
		w.ask(ask)
		wants("a fresh entry", "kept")

		u.serve = func(q *dns.Query) dns.Verdict {
			q.Fail(wire.Refused)
			q.Err = errors.New("too many")
			return dns.Done
		}
		w.ask(ask)
		wants("an entry in the place of a refusal", "kept")
		w.ask(newQuery("other.example.org", mdns.TypeA))
		wants("a refusal", "upstream")
		u.serve = nil

		time.Sleep(300 * time.Second)
		w.ask(ask)
		wants("an entry that was proved wrong", "upstream")
		time.Sleep(300 * time.Second)
		u.answer = answerWith(wire.ServFail, "")
		w.ask(ask)
		wants("an entry that must still do", "kept")

		w.local = func(q *dns.Query) dns.Verdict {
			q.RCode = wire.NXDomain
			return dns.Done
		}
		w.ask(ask)
		wants("this server's own", "local")
	})
}
