package dns

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// The walk goes down to who answers and up through those who passed, whether
// anybody waits or not.
func TestWalk(t *testing.T) {
	waits := func(then func(ctx context.Context, q *Query) error) both {
		return both{func(*Query) Verdict { return Wait }, then}
	}
	answers := func(ctx context.Context, q *Query) error { addresses(1)(q); return nil }
	for _, c := range []struct {
		name     string
		handlers func(log *[]string) []any
		want     []string
		rcode    int
		answers  int
		by       string
	}{
		{"the last answers", func(log *[]string) []any {
			return []any{trace{"a", log, next}, trace{"b", log, next}, trace{"c", log, addresses(1)}}
		}, []string{"down a", "down b", "down c", "up b", "up a"}, 0, 1, "h2"},
		{"the first answers", func(log *[]string) []any {
			return []any{trace{"a", log, addresses(1)}, trace{"b", log, next}}
		}, []string{"down a"}, 0, 1, "h0"},
		{"nobody answers", func(log *[]string) []any {
			return []any{trace{"a", log, next}, trace{"b", log, next}}
		}, []string{"down a", "down b", "up b", "up a"}, mdns.RcodeServerFailure, 0, ""},
		{"one waits and answers", func(log *[]string) []any {
			return []any{trace{"a", log, next}, waits(answers), trace{"c", log, next}}
		}, []string{"down a", "up a"}, 0, 1, "h1"},
		{"one waits and fails", func(log *[]string) []any {
			return []any{trace{"a", log, next}, waits(func(context.Context, *Query) error { return errTest })}
		}, []string{"down a", "up a"}, mdns.RcodeServerFailure, 0, "h1"},
		{"one waits and asks those below", func(log *[]string) []any {
			return []any{trace{"a", log, next}, waits(func(ctx context.Context, q *Query) error {
				*log = append(*log, "before")
				q.Next(ctx)
				*log = append(*log, "after")
				return nil
			}), trace{"c", log, next}, trace{"d", log, addresses(2)}}
		}, []string{"down a", "before", "down c", "down d", "up c", "after", "up a"}, 0, 2, "h3"},
		{"two wait, one below the other", func(log *[]string) []any {
			return []any{
				resolve(func(ctx context.Context, q *Query) error {
					q.Next(ctx)
					*log = append(*log, "up a")
					return nil
				}),
				trace{"b", log, next}, waits(answers),
			}
		}, []string{"down b", "up b", "up a"}, 0, 1, "h2"},
	} {
		for _, slow := range []bool{false, true} {
			var log []string
			ch := chain(c.handlers(&log)...)
			if slow {
				parkFirst(ch)
			}
			var by string
			seen := 0
			done := make(chan struct{})
			ch.Observe(observe(func(q *Query) { by = q.AnsweredBy(); seen++; close(done) }))
			r := newRig(t, 10, map[string]*Chain{".": ch})
			reply := r.answer(question("a.example", mdns.TypeA))
			<-done
			if reply.Rcode != c.rcode || len(reply.Answer) != c.answers {
				t.Errorf("%s (slow %v): got %v", c.name, slow, reply)
			}
			if !reflect.DeepEqual(log, c.want) {
				t.Errorf("%s (slow %v): walked %q, want %q", c.name, slow, log, c.want)
			}
			if by != c.by || seen != 1 {
				t.Errorf("%s (slow %v): observed %d times, answered by %q, want once, by %q", c.name, slow, seen, by, c.by)
			}
		}
	}
}

func TestDrop(t *testing.T) {
	for _, slow := range []bool{false, true} {
		var log []string
		ch := chain(trace{"a", &log, next}, serve(func(*Query) Verdict { return Drop }))
		if slow {
			parkFirst(ch)
		}
		dropped := make(chan bool, 1)
		ch.Observe(observe(func(q *Query) { dropped <- q.Dropped() }))
		r := newRig(t, 10, map[string]*Chain{".": ch})
		outcome, reply := r.ask(question("a.example", mdns.TypeA))
		switch {
		case slow && (outcome != Parked || r.wait() != nil):
			t.Error("a dropped query that waited got a reply")
		case !slow && (outcome != Dropped || reply != nil):
			t.Errorf("a dropped query has outcome %v", outcome)
		}
		if !<-dropped {
			t.Error("the observer does not see that the query was dropped")
		}
		if !slices.Equal(log, []string{"down a", "up a"}) {
			t.Errorf("walked %q", log)
		}
	}
}

// Finishers run once each whatever happens below: errors, panics inline and on
// a worker, no room to wait.
func TestFinishersAlwaysRun(t *testing.T) {
	panics := func(*Query) Verdict { panic("broken handler") }
	for _, c := range []struct {
		name   string
		below  any
		room   int
		panics int
	}{
		{"panic inline", serve(panics), 10, 1},
		{"panic in Resolve", resolve(func(context.Context, *Query) error { panic("broken handler") }), 10, 1},
		{"panic below a Resolve", resolve(func(ctx context.Context, q *Query) error { q.Next(ctx); return nil }), 10, 1},
		{"no room", resolve(func(context.Context, *Query) error { return nil }), 0, 0},
	} {
		var log []string
		r := newRig(t, c.room, map[string]*Chain{".": chain(trace{"a", &log, next}, trace{"b", &log, next}, c.below, serve(panics))})
		reply := r.answer(question("a.example", mdns.TypeA))
		r.lot.Close(context.Background())
		if reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("%s: got %v, want SERVFAIL", c.name, reply)
		}
		if want := []string{"down a", "down b", "up b", "up a"}; !slices.Equal(log, want) {
			t.Errorf("%s: walked %q, want %q", c.name, log, want)
		}
		if len(r.panics) != c.panics {
			t.Errorf("%s: %d panics were reported, want %d", c.name, len(r.panics), c.panics)
		}
	}
}

// A finisher that panics does not keep the one above it from running.
func TestPanickingFinisher(t *testing.T) {
	var log []string
	r := newRig(t, 1, map[string]*Chain{".": chain(trace{"a", &log, next}, badFinisher{}, serve(addresses(1)))})
	reply := r.answer(question("a.example", mdns.TypeA))
	if reply.Rcode != mdns.RcodeServerFailure || len(reply.Answer) > 0 {
		t.Errorf("got %v, want SERVFAIL", reply)
	}
	if want := []string{"down a", "up a"}; !slices.Equal(log, want) {
		t.Errorf("walked %q, want %q", log, want)
	}
}

type badFinisher struct{}

func (badFinisher) ServeDNS(*Query) Verdict { return Next }
func (badFinisher) FinishDNS(*Query)        { panic("broken finisher") }

// A parked query that takes too long is answered, because its context ends.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, map[string]*Chain{".": chain(resolve(func(ctx context.Context, q *Query) error {
			<-ctx.Done()
			return ctx.Err()
		}))})
		if outcome, _ := r.ask(question("a.example", mdns.TypeA)); outcome != Parked {
			t.Fatalf("outcome %v, want Parked", outcome)
		}
		if reply := <-r.sent; reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("got %v, want SERVFAIL", reply)
		}
	})
}

// Close waits for parked queries, and cancels them when its own time is up.
func TestLotClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, map[string]*Chain{".": chain(resolve(func(ctx context.Context, q *Query) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}))})
		r.ask(question("a.example", mdns.TypeA))
		if n := r.lot.Parked(); n != 1 {
			t.Errorf("%d queries are parked, want 1", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		closed := make(chan struct{})
		go func() { r.lot.Close(ctx); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close did not wait")
		default:
		}
		cancel()
		<-closed
		<-r.sent
		if n := r.lot.Parked(); n != 0 {
			t.Errorf("%d queries are still parked", n)
		}
	})
}

// What a handler writes before it says Wait is there when it resumes.
func TestAnswerSurvivesParking(t *testing.T) {
	h := both{
		func(q *Query) Verdict { addresses(3)(q); return Wait },
		func(ctx context.Context, q *Query) error { addresses(2)(q); return nil },
	}
	r := newRig(t, 1, map[string]*Chain{".": chain(h)})
	if reply := r.answer(question("a.example", mdns.TypeA)); len(reply.Answer) != 5 {
		t.Errorf("%d records, want 5", len(reply.Answer))
	}
}

func TestServingAllocatesNothing(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{"cluster.local": chain(serve(next), serve(addresses(1)))})
	packet, err := question("api.shop.svc.cluster.local", mdns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	q, lent := NewQuery(r), make([]byte, 0, 4096)
	room := append(q.Buffer(len(packet))[:0], packet...)
	now := q.Start
	if n := testing.AllocsPerRun(1000, func() {
		q.Reset(room, UDP, now)
		if r.port.Serve(q, lent) != Answered || q.Answer.Count[wire.Answers] != 1 {
			t.Error("no answer")
		}
		q.Observe(now)
	}); n != 0 {
		t.Errorf("a query allocates %v times", n)
	}
}

// An observer that panics costs nobody anything but itself, on a worker too.
func TestPanickingObserver(t *testing.T) {
	ch := chain(resolve(func(ctx context.Context, q *Query) error { addresses(1)(q); return nil }))
	ch.Observe(observe(func(*Query) { panic("broken observer") }))
	r := newRig(t, 1, map[string]*Chain{".": ch})
	if reply := r.answer(question("a.example", mdns.TypeA)); len(reply.Answer) != 1 {
		t.Errorf("got %v, want an address", reply)
	}
	r.lot.Close(context.Background())
	if len(r.panics) != 1 {
		t.Errorf("%d panics were reported, want 1", len(r.panics))
	}
}

// A query that has been answered holds nothing of the plan that answered it.
func TestAnsweredQueryLetsGo(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{".": chain(asker{})})
	packet, _ := question("a.zone", mdns.TypeA).Pack()
	q := NewQuery(r)
	q.Reset(append(q.Buffer(len(packet))[:0], packet...), UDP, q.Start)
	r.port.Serve(q, nil)
	q.Observe(q.Start)
	if q.mux != nil || q.chain != nil || q.sub.mux != nil || q.sub.chain != nil {
		t.Error("it holds the mux or the chain")
	}
}
