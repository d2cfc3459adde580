package dns

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/metrics"
)

// A bounding is a Reserver with room for a number of queries, which wait for a second.
type bounding struct {
	room    int64
	held    atomic.Int64
	resolve func(q *Query) error // may be nil
}

func (r *bounding) ReserveDNS(*Query) (release func(), err error) {
	if r.held.Add(1) > r.room {
		r.held.Add(-1)
		return nil, HandlerShare
	}
	return func() { r.held.Add(-1) }, nil
}

func (r *bounding) AwaitDNS(q *Query, wake func()) bool {
	time.AfterFunc(time.Second, wake)
	return q.Reserved()
}

func (r *bounding) Resolve(_ context.Context, q *Query) error {
	if r.resolve != nil {
		if err := r.resolve(q); err != nil {
			return err
		}
	}
	addresses(1)(q)
	return nil
}

// Queries that wait for a Reserver take no places of others, are as many as it permits, and are released at the
// end; the others are SERVFAIL.
func TestReserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &bounding{room: 50}
		hang := resolve(func(ctx context.Context, _ *Query) error { <-ctx.Done(); return ctx.Err() })
		r := newRig(t, 1, map[string]*Chain{"a.": chain(h), "b.": chain(hang)})
		r.lot.Rejected[HandlerShare] = new(metrics.Counter)
		for i := range 50 {
			if outcome, reply := r.ask(newQuery("a.", mdns.TypeA)); outcome != Parked {
				t.Fatalf("query %d: got outcome %v and %v, want it parked", i, outcome, reply)
			}
		}
		if n := r.lot.Places(); n != 0 {
			t.Errorf("%d places are in use, want none", n)
		}
		if outcome, reply := r.ask(newQuery("a.", mdns.TypeA)); outcome != Answered || reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("a query more than the Reserver permits: got outcome %v and %v, want SERVFAIL", outcome, reply)
		}
		if n := r.lot.Rejected[HandlerShare].Value(); n != 1 {
			t.Errorf("got %d queries rejected, want one", n)
		}
		if outcome, _ := r.ask(newQuery("b.", mdns.TypeA)); outcome != Parked {
			t.Errorf("a query for another handler: got outcome %v, want it parked", outcome)
		}

		for i := range 50 {
			if reply := <-r.sent; len(reply.Answer) != 1 {
				t.Errorf("reply %d: got %v, want an address", i, reply)
			}
		}
		if reply := <-r.sent; reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("the other handler: got %v, want SERVFAIL at its deadline", reply)
		}
		r.lot.Close(t.Context())
		if n := h.held.Load(); n != 0 || r.lot.Parked() != 0 || r.lot.Places() != 0 {
			t.Errorf("%d queries of the Reserver, %d queries and %d places in use at the end, want none", n, r.lot.Parked(), r.lot.Places())
		}
	})
}

// A query that blocks after it has waited for a Reserver needs a place with a stack, and leaves the Reserver.
func TestReserverBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &bounding{room: 10}
		r := newRig(t, 1, map[string]*Chain{"a.": chain(h)})
		h.resolve = func(q *Query) error {
			if err := q.Block(); err != nil {
				return err
			}
			if n, held := r.lot.Places(), h.held.Load(); n != stackPlaces || held != 1 || q.Reserved() {
				t.Errorf("a query blocks: %d places in use and %d queries of the Reserver, this one among them: %v; want %d, the other one, false",
					n, held, q.Reserved(), stackPlaces)
			}
			time.Sleep(2 * time.Second)
			return nil
		}
		for i := range 2 {
			time.Sleep(time.Duration(i) * time.Second / 2)
			if outcome, _ := r.ask(newQuery("a.", mdns.TypeA)); outcome != Parked {
				t.Fatalf("got outcome %v, want it parked", outcome)
			}
		}

		// There is a place for one of them.
		codes := map[int]int{}
		for range 2 {
			codes[(<-r.sent).Rcode]++
		}
		if codes[mdns.RcodeSuccess] != 1 || codes[mdns.RcodeServerFailure] != 1 {
			t.Errorf("got replies %v, want one answer and one SERVFAIL", codes)
		}
		r.lot.Close(t.Context())
		if n := h.held.Load(); n != 0 || r.lot.Places() != 0 {
			t.Errorf("%d queries of the Reserver and %d places in use at the end, want none", n, r.lot.Places())
		}
	})
}

// Below a handler that blocks, a query has the place of that one, and none of the Reserver. After a panic it has
// neither.
func TestReserverElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &bounding{}
		below := chain(h)
		parkFirst(below)
		panics := &bounding{room: 1, resolve: func(*Query) error { panic(errors.New("resolve")) }}
		r := newRig(t, 1, map[string]*Chain{"a.": below, "b.": chain(panics)})
		start := time.Now()
		r.ask(newQuery("a.", mdns.TypeA))
		if reply := <-r.sent; len(reply.Answer) != 1 || time.Since(start) > 0 {
			t.Errorf("below a handler that blocks: got %v after %v, want an address at once", reply, time.Since(start))
		}
		r.ask(newQuery("b.", mdns.TypeA))
		if reply := <-r.sent; reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("a panic: got %v, want SERVFAIL", reply)
		}
		r.lot.Close(t.Context())
		if n := panics.held.Load(); n != 0 || r.lot.Places() != 0 {
			t.Errorf("%d queries of the Reserver and %d places in use at the end, want none", n, r.lot.Places())
		}
		r.panics = nil
	})
}
