package dns

import (
	"context"
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// If the parking lot is full, a query that would wait gets SERVFAIL at once and
// is counted.
func TestParkingLotFull(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, 1, map[string]*Chain{".": chain(resolve(func(context.Context, *Query) error { <-release; return nil }))})
	r.lot.Rejected[LotFull] = new(metrics.Counter)
	if outcome, _ := r.ask(newQuery("a.", mdns.TypeA)); outcome != Parked {
		t.Errorf("first query: got outcome %v, want %v", outcome, Parked)
	}
	for n := range uint64(3) {
		if got := r.lot.Rejected[LotFull].Value(); got != n {
			t.Errorf("after %d rejected queries: Rejected[LotFull] is %d, want %d", n, got, n)
		}
		if outcome, reply := r.ask(newQuery("a.", mdns.TypeA)); outcome != Answered || reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("got outcome %v, reply %v; want %v, SERVFAIL", outcome, reply, Answered)
		}
	}
	close(release)
	r.wait()
}

// Queries that wait for one handler leave places for other handlers, and queries of one
// client leave places for other clients.
func TestParkingLotShares(t *testing.T) {
	const room = 60
	hang := func() *Chain {
		return chain(resolve(func(ctx context.Context, _ *Query) error { <-ctx.Done(); return ctx.Err() }))
	}
	r := newRig(t, room, map[string]*Chain{"a.": hang(), "b.": hang(), "c.": hang()})
	counter := func(client string) *atomic.Int32 { return r.lot.client(netip.MustParseAddr(client)) }
	for counter("10.0.0.1") == counter("10.0.0.2") || counter("10.0.0.1") == counter("2001:db8:1:2::1") || counter("10.0.0.2") == counter("2001:db8:1:2::1") {
		r.lot.seed = maphash.MakeSeed() // clients may share a counter
	}
	for _, step := range []struct {
		client, name string
		want         int // of room+1 queries
	}{
		{"10.0.0.1", "a.", 24}, // Two fifths of the places.
		{"10.0.0.2", "a.", 5},  // The handler has almost half of them.
		{"10.0.0.1", "b.", 8},
		{"10.0.0.1", "c.", 3}, // The client has less than two thirds of them.
		{"10.0.0.2", "b.", 4},
		{"2001:db8:1:2::1", "c.", 5},
		{"2001:db8:1:2::2", "c.", 0},
	} {
		got := 0
		for range room + 1 {
			if parkFrom(r, netip.MustParseAddr(step.client), step.name) {
				got++
			}
		}
		if got != step.want {
			t.Errorf("%d queries of %s for %s: got %d parked, want %d (%d parked in all)", room+1, step.client, step.name, got, step.want, r.lot.Parked())
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r.lot.Close(ended)
	if n := r.lot.Parked(); n != 0 {
		t.Errorf("after Close: got %d parked queries, want 0", n)
	}
}

// parkFrom sends a query of a client for a name of one label. It reports whether it was
// parked.
func parkFrom(r *rig, client netip.Addr, name string) bool {
	q := NewQuery(r)
	q.Reset(wire.AppendRequest(nil, 1, 0, []byte("\x01"+name[:1]+"\x00"), wire.TypeA), UDP, time.Now())
	q.Peer = netip.AddrPortFrom(client, 53)
	return r.port.Serve(q, make([]byte, 0, 1024)) == Parked
}

// However many queries of many clients wait for a handler, another client's few are parked,
// too.
func TestParkingLotManyClients(t *testing.T) {
	const room, clients = 1000, 100
	r := newRig(t, room, map[string]*Chain{".": chain(awaitFunc(func(*Query, func()) bool { return true }))})
	for i := range 10 * stackPlaces * room {
		parkFrom(r, netip.AddrFrom4([4]byte{10, 0, 0, byte(i % clients)}), "a.")
	}
	waiting := r.lot.Parked()
	if waiting < stackPlaces*room/3 {
		t.Errorf("%d queries of %d clients are parked, want at least a third of %d", waiting, clients, stackPlaces*room)
	}
	quiet := netip.MustParseAddr("10.0.1.1")
	for i := byte(2); r.lot.client(quiet).Load() > 0; i++ { // clients may share a counter
		quiet = netip.AddrFrom4([4]byte{10, 0, 1, i})
	}
	const few = room / clients / 2
	for i := range few {
		if !parkFrom(r, quiet, "a.") {
			t.Fatalf("query %d of another client, while %d of %d clients wait: rejected, want it parked", i+1, waiting, clients)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var replies sync.WaitGroup
	replies.Go(func() {
		for range waiting + few {
			<-r.sent
		}
	})
	r.lot.Close(ended)
	replies.Wait()
}

// Under overload one handler can occupy a sixteenth of the lot, and others as much. Beyond
// that there is no reply over UDP, and SERVFAIL over TCP.
func TestParkingLotOverload(t *testing.T) {
	const room = 100
	waits := func() *Chain { return chain(awaitFunc(func(*Query, func()) bool { return true })) }
	r := newRig(t, room, map[string]*Chain{"a.": waits(), "b.": waits()})
	parked := func(name string) (n int) {
		for i := range 10 * stackPlaces * room {
			if parkFrom(r, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), name) {
				n++
			}
		}
		return n
	}
	const most = stackPlaces * room / overloadPart
	r.port.SetOverloaded(true)
	for _, name := range []string{"a.", "b."} {
		if n := parked(name); n < most*9/10 || n > most {
			t.Errorf("overload: %d queries for %s are parked, want about %d", n, name, most)
		}
	}
	packet, err := newQuery("a.", mdns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		proto Proto
		want  Outcome
	}{{UDP, Dropped}, {TCP, Answered}} {
		outcome, reply := r.askBytes(packet, tt.proto)
		if outcome != tt.want || outcome == Answered && reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("overload: a query for a. over %v that cannot wait: got outcome %v and reply %v, want outcome %v, and SERVFAIL if it is answered", tt.proto, outcome, reply, tt.want)
		}
	}
	r.port.SetOverloaded(false)
	if n := parked("a."); n < most {
		t.Errorf("after the overload: %d more queries are parked, want at least %d", n, most)
	}
	waiting := r.lot.Parked()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var replies sync.WaitGroup
	replies.Go(func() {
		for range waiting {
			<-r.sent
		}
	})
	r.lot.Close(ended)
	replies.Wait()
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
		if reply := r.answer(newQuery("a.", mdns.TypeA)); reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("parked %v: got %v, want SERVFAIL", parked, reply)
		}
	}
}

// When the context of a parked query ends, its handler returns and the query is
// answered.
func TestParkedQueryTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, map[string]*Chain{".": chain(resolve(func(ctx context.Context, q *Query) error {
			<-ctx.Done()
			return ctx.Err()
		}))})
		if outcome, _ := r.ask(newQuery("a.example", mdns.TypeA)); outcome != Parked {
			t.Fatalf("outcome %v, want Parked", outcome)
		}
		if reply := <-r.sent; reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("got %v, want SERVFAIL", reply)
		}
	})
}

// Close waits for parked queries, and cancels their context when its own context
// ends.
func TestParkingLotClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, map[string]*Chain{".": chain(resolve(func(ctx context.Context, q *Query) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}))})
		r.ask(newQuery("a.example", mdns.TypeA))
		if n := r.lot.Parked(); n != 1 {
			t.Errorf("%d queries are parked, want 1", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		closed := make(chan struct{})
		go func() { r.lot.Close(ctx); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close returned while a query was parked, want it to wait")
		default:
		}
		cancel()
		<-closed
		<-r.sent
		if n := r.lot.Parked(); n != 0 {
			t.Errorf("after Close %d queries are parked, want 0", n)
		}
	})
}

// Records that ServeDNS wrote before it returned Wait are in the answer when
// Resolve runs.
func TestParkedQueryKeepsAnswer(t *testing.T) {
	h := serveAndResolve{
		func(q *Query) Verdict { addresses(3)(q); return Wait },
		func(ctx context.Context, q *Query) error { addresses(2)(q); return nil },
	}
	r := newRig(t, 1, map[string]*Chain{".": chain(h)})
	if reply := r.answer(newQuery("a.example", mdns.TypeA)); len(reply.Answer) != 5 {
		t.Errorf("got %d records, want 3 of ServeDNS and 2 of Resolve: %v", len(reply.Answer), reply)
	}
}
