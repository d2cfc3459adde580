package dns

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// A wakingHandler is an Awaiter whose queries wait until all are woken.
type wakingHandler struct {
	resolve
	waiting chan func()
}

func (h wakingHandler) AwaitDNS(_ *Query, wake func()) bool { h.waiting <- wake; return true }

// wake resumes all queries that wait.
func (h wakingHandler) wake() {
	for range len(h.waiting) {
		(<-h.waiting)()
	}
}

// Of queries that stop waiting at the same time only some are resumed; each of the others follows one that ends.
func TestResumedQueriesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := maxResumed() + 20
		running, step := new(atomic.Int32), make(chan struct{})
		h := wakingHandler{waiting: make(chan func(), n), resolve: func(_ context.Context, q *Query) error {
			running.Add(1)
			<-step // it computes
			running.Add(-1)
			addresses(1)(q)
			return nil
		}}
		r := newRig(t, n, map[string]*Chain{".": chain(h)})
		r.sent = make(chan *mdns.Msg, n)
		for range n {
			r.ask(newQuery("a.", mdns.TypeA))
		}
		synctest.Wait()
		h.wake()

		for ended := range n {
			synctest.Wait()
			if got, want := int(running.Load()), min(maxResumed(), n-ended); got != want {
				t.Fatalf("%d queries have ended: got %d that are being resumed, want %d", ended, got, want)
			}
			step <- struct{}{}
		}
		for range n {
			if reply := <-r.sent; len(reply.Answer) != 1 {
				t.Errorf("got %v, want one record", reply)
			}
		}
		r.lot.Close(t.Context())
		if free := r.lot.resumed.free; free != maxResumed() {
			t.Errorf("at the end: got %d turns, want %d", free, maxResumed())
		}
	})
}

// A query that blocks while it is resumed, or whose client takes no answer, keeps no other one waiting.
func TestResumedQueriesThatBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := maxResumed()
		last := make(chan struct{})
		h := wakingHandler{waiting: make(chan func(), n), resolve: func(ctx context.Context, q *Query) error {
			switch q.Type {
			case wire.TypeAAAA:
				q.Next(ctx)
			case wire.TypeMX:
				if err := q.Block(); err != nil {
					return err
				}
				<-last
			case wire.TypeTXT:
				close(last)
			}
			return nil
		}}
		below := resolve(func(context.Context, *Query) error { <-last; return nil })
		r := newRig(t, 16*n, map[string]*Chain{".": chain(h, below)})
		r.sent = make(chan *mdns.Msg) // n clients take nothing before the last query is resumed
		for _, qtype := range []uint16{mdns.TypeAAAA, mdns.TypeMX, mdns.TypeA, mdns.TypeTXT} {
			for range n {
				r.ask(newQuery("a.", qtype))
				if qtype == mdns.TypeTXT {
					break
				}
			}
			synctest.Wait()
			h.wake()
			synctest.Wait()
		}
		<-last
		for range 3*n + 1 {
			<-r.sent
		}
		r.lot.Close(t.Context())
	})
}

// A large answer takes places until it is delivered, those of the query that the client has sent, or fails.
func TestReserveAnswer(t *testing.T) {
	for _, c := range []struct {
		bytes int
		sub   bool
		want  int64 // places of the query with its answer; 0 for SERVFAIL
	}{
		{answerPlace - 1, false, 1}, {5 * answerPlace, false, 6}, {5 * answerPlace, true, 6 + stackPlaces - 1}, {100 * answerPlace, false, 0},
	} {
		var r *rig
		var got int64
		answer := awaitFunc(func(*Query, func()) bool { return false })
		reserve := reserving{answer, func(q *Query) error {
			err := q.ReserveAnswer(c.bytes)
			got = r.lot.used.Load()
			return err
		}}
		ask := reserving{answer, func(q *Query) error {
			q.ResolveSubQuery(t.Context(), []byte("\x03sub\x00"), wire.TypeA)
			return nil
		}}
		top := chain(reserve)
		if c.sub {
			top = chain(ask)
		}
		r = newRig(t, 10, map[string]*Chain{".": top, "sub.": chain(reserve)})
		reply := r.answer(newQuery("a.", mdns.TypeA))
		if failed := reply.Rcode == mdns.RcodeServerFailure; failed != (c.want == 0) || !failed && got != c.want {
			t.Errorf("%+v: got %d places and %s", c, got, mdns.RcodeToString[reply.Rcode])
		}
		r.lot.Close(t.Context())
		if n := r.lot.used.Load(); n != 0 {
			t.Errorf("%+v: %d places are in use after the reply, want none", c, n)
		}
	}
}

type reserving struct {
	awaitFunc
	do func(*Query) error
}

func (h reserving) Resolve(ctx context.Context, q *Query) error {
	if err := h.do(q); err != nil {
		return err
	}
	return h.awaitFunc.Resolve(ctx, q)
}

// While there is room for fewer queries than usual, no more may wait.
func TestParkingLotLessRoom(t *testing.T) {
	never := awaitFunc(func(*Query, func()) bool { return true })
	for part, want := range map[int64]int{1: 40, 4: 10} { // one handler can have half
		r := newRig(t, 10, map[string]*Chain{".": chain(never)})
		r.lot.Room = func(places int64) int64 { return places / part }
		parked := 0
		for range 100 {
			if outcome, _ := r.ask(newQuery("a.", mdns.TypeA)); outcome == Parked {
				parked++
			}
		}
		if parked > want || parked < want/2 {
			t.Errorf("with 1/%d of the places: %d queries wait, want about %d", part, parked, want)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		r.lot.Close(ended)
	}
}
