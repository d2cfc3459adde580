package dns

import (
	"context"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/seamark/seamark/metrics"
)

// If the parking lot is full, a query that would wait gets SERVFAIL at once and
// is counted.
func TestParkingLotFull(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, 1, map[string]*Chain{".": chain(resolve(func(context.Context, *Query) error { <-release; return nil }))})
	r.lot.Rejected = new(metrics.Counter)
	if outcome, _ := r.ask(question("a.", mdns.TypeA)); outcome != Parked {
		t.Errorf("first query: got outcome %v, want %v", outcome, Parked)
	}
	for n := range uint64(3) {
		if got := r.lot.Rejected.Value(); got != n {
			t.Errorf("after %d rejected queries: Rejected is %d, want %d", n, got, n)
		}
		if outcome, reply := r.ask(question("a.", mdns.TypeA)); outcome != Answered || reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("got outcome %v, reply %v; want %v, SERVFAIL", outcome, reply, Answered)
		}
	}
	close(release)
	r.wait()
}

// Query.Timeout, which a handler sets, bounds a parked query.
func TestQueryTimeout(t *testing.T) {
	for _, parked := range []bool{false, true} {
		c := chain(serve(func(q *Query) Verdict { q.Timeout = 20 * time.Millisecond; return Next }),
			resolve(func(ctx context.Context, _ *Query) error { <-ctx.Done(); return ctx.Err() }))
		if parked {
			parkFirst(c)
		}
		r := newRig(t, 1, map[string]*Chain{".": c})
		if reply := r.answer(question("a.", mdns.TypeA)); reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("parked %v: got %v, want SERVFAIL", parked, reply)
		}
	}
}
