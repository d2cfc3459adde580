package dns

import (
	"context"
	"reflect"
	"slices"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// A query walks down to the handler that answers, and up through the finishers of
// the handlers that it passed. The order is the same when a handler waits.
func TestChainWalk(t *testing.T) {
	waits := func(then func(ctx context.Context, q *Query) error) serveAndResolve {
		return serveAndResolve{func(*Query) Verdict { return Wait }, then}
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
		{"no handler answers", func(log *[]string) []any {
			return []any{trace{"a", log, next}, trace{"b", log, next}}
		}, []string{"down a", "down b", "up b", "up a"}, mdns.RcodeServerFailure, 0, ""},
		{"one waits and answers", func(log *[]string) []any {
			return []any{trace{"a", log, next}, waits(answers), trace{"c", log, next}}
		}, []string{"down a", "up a"}, 0, 1, "h1"},
		{"one waits and fails", func(log *[]string) []any {
			return []any{trace{"a", log, next}, waits(func(context.Context, *Query) error { return errTest })}
		}, []string{"down a", "up a"}, mdns.RcodeServerFailure, 0, "h1"},
		{"one waits and calls Next", func(log *[]string) []any {
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
		for _, parked := range []bool{false, true} {
			var log []string
			ch := chain(c.handlers(&log)...)
			if parked {
				parkFirst(ch)
			}
			var by string
			seen := 0
			done := make(chan struct{})
			ch.Observe(observe(func(q *Query) { by = q.AnsweredBy(); seen++; close(done) }))
			r := newRig(t, 10, map[string]*Chain{".": ch})
			reply := r.answer(newQuery("a.example", mdns.TypeA))
			<-done
			if reply.Rcode != c.rcode || len(reply.Answer) != c.answers {
				t.Errorf("%s (parked %v): got %v, want %s with %d records", c.name, parked, reply, mdns.RcodeToString[c.rcode], c.answers)
			}
			if !reflect.DeepEqual(log, c.want) {
				t.Errorf("%s (parked %v): walked %q, want %q", c.name, parked, log, c.want)
			}
			if by != c.by || seen != 1 {
				t.Errorf("%s (parked %v): observed %d times, answered by %q, want once, by %q", c.name, parked, seen, by, c.by)
			}
		}
	}
}

func TestDroppedQuery(t *testing.T) {
	for _, parked := range []bool{false, true} {
		var log []string
		ch := chain(trace{"a", &log, next}, serve(func(*Query) Verdict { return Drop }))
		if parked {
			parkFirst(ch)
		}
		dropped := make(chan bool, 1)
		ch.Observe(observe(func(q *Query) { dropped <- q.Dropped() }))
		r := newRig(t, 10, map[string]*Chain{".": ch})
		outcome, reply := r.ask(newQuery("a.example", mdns.TypeA))
		switch {
		case parked && (outcome != Parked || r.wait() != nil):
			t.Error("a dropped query that was parked: got a reply, want none")
		case !parked && (outcome != Dropped || reply != nil):
			t.Errorf("a dropped query: got outcome %v and reply %v, want %v and none", outcome, reply, Dropped)
		}
		if !<-dropped {
			t.Errorf("parked %v: Dropped in the observer: got false, want true", parked)
		}
		if want := []string{"down a", "up a"}; !slices.Equal(log, want) {
			t.Errorf("parked %v: walked %q, want %q", parked, log, want)
		}
	}
}

// Finishers run once each after an error, after a panic of a handler inline or on
// a goroutine of its own, and when the parking lot is full.
func TestFinishersRunAfterFailure(t *testing.T) {
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
		{"parking lot full", resolve(func(context.Context, *Query) error { return nil }), 0, 0},
	} {
		var log []string
		r := newRig(t, c.room, map[string]*Chain{".": chain(trace{"a", &log, next}, trace{"b", &log, next}, c.below, serve(panics))})
		reply := r.answer(newQuery("a.example", mdns.TypeA))
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

// The finishers above one that panics run.
func TestFinisherPanic(t *testing.T) {
	var log []string
	r := newRig(t, 1, map[string]*Chain{".": chain(trace{"a", &log, next}, badFinisher{}, serve(addresses(1)))})
	reply := r.answer(newQuery("a.example", mdns.TypeA))
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

func TestServeAllocations(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{"cluster.local": chain(serve(next), serve(addresses(1)))})
	packet, err := newQuery("api.shop.svc.cluster.local", mdns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	q, lent := NewQuery(r), make([]byte, 0, 4096)
	now := q.Start
	if n := testing.AllocsPerRun(1000, func() {
		q.Reset(packet, UDP, now)
		if r.port.Serve(q, lent) != Answered || q.Answer.Count[wire.Answers] != 1 {
			t.Errorf("got %d records, want 1", q.Answer.Count[wire.Answers])
		}
		q.Observe(now)
	}); n != 0 {
		t.Errorf("serving a query allocates %v times, want 0", n)
	}
}

// A panic of an observer affects neither the reply nor the goroutine that sends
// it.
func TestObserverPanic(t *testing.T) {
	ch := chain(resolve(func(ctx context.Context, q *Query) error { addresses(1)(q); return nil }))
	ch.Observe(observe(func(*Query) { panic("broken observer") }))
	r := newRig(t, 1, map[string]*Chain{".": ch})
	if reply := r.answer(newQuery("a.example", mdns.TypeA)); len(reply.Answer) != 1 {
		t.Errorf("got %v, want an address", reply)
	}
	r.lot.Close(context.Background())
	if len(r.panics) != 1 {
		t.Errorf("%d panics were reported, want 1", len(r.panics))
	}
}

// An observed query holds no reference to the mux or the chain that answered it.
func TestObservedQueryReferences(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{".": chain(subQuerier{})})
	packet, _ := newQuery("a.zone", mdns.TypeA).Pack()
	q := NewQuery(r)
	q.Reset(packet, UDP, q.Start)
	r.port.Serve(q, nil)
	q.Observe(q.Start)
	if q.mux != nil || q.chain != nil || q.sub.mux != nil || q.sub.chain != nil {
		t.Errorf("mux %p, chain %p, sub-query's mux %p, chain %p; want nil", q.mux, q.chain, q.sub.mux, q.sub.chain)
	}
}

// everyClass is a Handler for queries of all classes.
type everyClass struct {
	serve
	use ClassUse
}

func (h everyClass) AnyClass() ClassUse { return h.use }

// Handlers without AnyClass see only queries of class IN.
func TestChainClasses(t *testing.T) {
	var walked []string
	in := trace{"in", &walked, next}
	ch := func(use ClassUse) *Chain { return chain(in, everyClass{addresses(1), use}) }
	query := newQuery("version.bind", mdns.TypeTXT)
	query.Question[0].Qclass = mdns.ClassCHAOS
	if reply := newRig(t, 1, map[string]*Chain{".": ch(ClassPassed)}).answer(query); reply.Rcode != mdns.RcodeRefused {
		t.Errorf("class CH, passed: got %v, want REFUSED", reply)
	}
	if reply := newRig(t, 1, map[string]*Chain{".": ch(ClassAnswered)}).answer(query); len(reply.Answer) != 1 || len(walked) > 0 {
		t.Errorf("class CH, answered: got %v, called %v; want one record, no handler of class IN", reply, walked)
	}
	if newRig(t, 1, map[string]*Chain{".": ch(ClassAnswered)}).answer(newQuery("a.", mdns.TypeA)); len(walked) != 2 {
		t.Errorf("class IN: called %v, want down in and up in", walked)
	}
}
