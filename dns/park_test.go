package dns

import (
	"context"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/seamark/seamark/metrics"
)

// A query for which there is no room is answered at once, and counted.
func TestLotGivenUp(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, 1, map[string]*Chain{".": chain(resolve(func(context.Context, *Query) error { <-release; return nil }))})
	r.lot.Rejected = new(metrics.Counter)
	if outcome, _ := r.ask(question("a.", mdns.TypeA)); outcome != Parked {
		t.Errorf("the first is %v", outcome)
	}
	for n := range uint64(3) {
		if got := r.lot.Rejected.Value(); got != n {
			t.Errorf("counted %d, want %d", got, n)
		}
		if outcome, reply := r.ask(question("a.", mdns.TypeA)); outcome != Answered || reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("got %v %v", outcome, reply)
		}
	}
	close(release)
	r.wait()
}

// slow has the handlers say how long a query may take, too.
func TestPatienceOfSlowChains(t *testing.T) {
	for _, slow := range []bool{false, true} {
		c := chain(serve(func(q *Query) Verdict { q.Timeout = 20 * time.Millisecond; return Next }),
			resolve(func(ctx context.Context, _ *Query) error { <-ctx.Done(); return ctx.Err() }))
		if slow {
			parkFirst(c)
		}
		r := newRig(t, 1, map[string]*Chain{".": c})
		if reply := r.answer(question("a.", mdns.TypeA)); reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("slow %v: got %v", slow, reply)
		}
	}
}
