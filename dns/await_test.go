package dns

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"
)

// An awaitFunc is an Awaiter whose AwaitDNS is a function. Resolve answers with one
// record, or returns the error of its context.
type awaitFunc func(q *Query, wake func()) bool

func (f awaitFunc) AwaitDNS(q *Query, wake func()) bool { return f(q, wake) }

func (f awaitFunc) Resolve(ctx context.Context, q *Query) error {
	if ctx.Err() == nil {
		addresses(1)(q)
	}
	return ctx.Err()
}

func TestAwaiter(t *testing.T) {
	for name, c := range map[string]struct {
		await   awaitFunc
		records int // 0 for SERVFAIL
	}{
		"event later":                   {func(_ *Query, wake func()) bool { time.AfterFunc(time.Second, wake); return true }, 1},
		"several events":                {func(_ *Query, wake func()) bool { go wake(); go wake(); time.AfterFunc(time.Second, wake); return true }, 1},
		"event before AwaitDNS ends":    {func(_ *Query, wake func()) bool { wake(); return true }, 1},
		"nothing to wait for":           {func(*Query, func()) bool { return false }, 1},
		"event and no need to wait":     {func(_ *Query, wake func()) bool { wake(); return false }, 1},
		"no event":                      {func(*Query, func()) bool { return true }, 0},
		"panic":                         {func(*Query, func()) bool { panic("await") }, 0},
		"panic and a later event":       {func(_ *Query, wake func()) bool { time.AfterFunc(time.Second, wake); panic("await") }, 0},
		"deadline before AwaitDNS ends": {func(*Query, func()) bool { time.Sleep(time.Minute); return true }, 0},
	} {
		for _, blocking := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				up := 0
				chain := chain(finisher(func(*Query) { up++ }), c.await)
				if blocking {
					parkFirst(chain)
				}
				r := newRig(t, 1, map[string]*Chain{".": chain})
				start := time.Now()
				r.ask(newQuery("a.", mdns.TypeA))
				reply := <-r.sent
				if len(reply.Answer) != c.records || (reply.Rcode == mdns.RcodeServerFailure) != (c.records == 0) || up != 1 {
					t.Errorf("%s, blocking %v: got %d calls of the finisher and\n%v\nwant one call and %d records", name, blocking, up, reply, c.records)
				}
				if took := time.Since(start); took > time.Minute {
					t.Errorf("%s, blocking %v: answered after %v, want at most a minute", name, blocking, took)
				}
				r.lot.Close(t.Context())
				time.Sleep(time.Minute) // later events
				if n := r.lot.Parked(); n != 0 || r.lot.used.Load() != 0 {
					t.Errorf("%s, blocking %v: %d queries and %d places are in use after the reply, want none", name, blocking, n, r.lot.used.Load())
				}
			})
		}
	}
}

// Later events follow.
func TestParkingLotCloseAwaiting(t *testing.T) {
	never := awaitFunc(func(*Query, func()) bool { return true })
	r := newRig(t, 4, map[string]*Chain{".": chain(never)})
	const n = 8
	for range n {
		if outcome, _ := r.ask(newQuery("a.", mdns.TypeA)); outcome != Parked {
			t.Errorf("got outcome %v, want %v", outcome, Parked)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r.lot.Close(ended)
	for range n {
		if reply := r.wait(); reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("got %v, want SERVFAIL", reply)
		}
	}
}

// Queries without a goroutine need an eighth of the places; large ones more.
func TestParkingLotPlaces(t *testing.T) {
	never := awaitFunc(func(*Query, func()) bool { return true })
	blocked := resolve(func(ctx context.Context, _ *Query) error { <-ctx.Done(); return ctx.Err() })
	for _, c := range []struct {
		handler any
		padding int // bytes of the packet
		want    int64
	}{
		{never, 0, 1},
		{blocked, 0, stackPlaces},
		{never, packetPlace, 2},
		{never, 5*packetPlace - 100, 5},
	} {
		r := newRig(t, 10, map[string]*Chain{".": chain(c.handler)})
		m := newQuery("a.", mdns.TypeA)
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &mdns.EDNS0_PADDING{Padding: make([]byte, c.padding)})
		if outcome, _ := r.ask(m); outcome != Parked || r.lot.used.Load() != c.want {
			t.Errorf("%T with %d bytes of padding: got outcome %v and %d places, want %v and %d", c.handler, c.padding, outcome, r.lot.used.Load(), Parked, c.want)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		r.lot.Close(ended)
		r.wait()
	}
}

// A query that got its place without a goroutine needs more of them when Next blocks.
func TestNextNeedsPlaces(t *testing.T) {
	slow := resolve(func(_ context.Context, q *Query) error { addresses(1)(q); return nil })
	for _, c := range []struct{ room, want int }{{1, mdns.RcodeServerFailure}, {2, mdns.RcodeSuccess}} {
		r := newRig(t, c.room, map[string]*Chain{".": chain(awaitingNext{}, slow)})
		if reply := r.answer(newQuery("a.", mdns.TypeA)); reply.Rcode != c.want {
			t.Errorf("lot for %d queries: got %v, want %s", c.room, reply, mdns.RcodeToString[c.want])
		}
		r.lot.Close(t.Context())
		if n := r.lot.used.Load(); n != 0 {
			t.Errorf("lot for %d queries: %d places are in use after the reply, want none", c.room, n)
		}
	}
}

// An awaitingNext is an Awaiter that calls the handlers below.
type awaitingNext struct{}

func (awaitingNext) AwaitDNS(_ *Query, wake func()) bool         { go wake(); return true }
func (awaitingNext) Resolve(ctx context.Context, q *Query) error { q.Next(ctx); return nil }
