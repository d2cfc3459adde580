package dns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/wire"
)

// interceptor appends its calls to the log to, and returns the verdict of
// intercept.
type interceptor struct {
	to        *[]string
	intercept serve
	below     int // the argument of the last InterceptDNS
	resolve
}

func (h *interceptor) ServeDNS(*Query) Verdict {
	*h.to = append(*h.to, "down interceptor")
	return Next
}

func (h *interceptor) InterceptDNS(q *Query, below int) Verdict {
	*h.to = append(*h.to, "intercept")
	h.below = below
	return h.intercept(q)
}

func (h *interceptor) FinishDNS(*Query) { *h.to = append(*h.to, "up interceptor") }

// An Interceptor may answer, drop or resolve a query in place of the handler below
// it that waits. Each finisher runs once for each time that its handler was passed.
func TestInterceptor(t *testing.T) {
	wait := serveAndResolve{
		serve(func(q *Query) Verdict { _ = addresses(3)(q); return Wait }),
		resolve(func(_ context.Context, q *Query) error { q.Answer.Clear(); addresses(2)(q); return nil }),
	}
	waits := func(*Query) Verdict { return Wait }
	intercepted := []string{"down above", "down interceptor", "down between", "intercept", "up between", "up above"}
	for _, test := range []struct {
		name      string
		intercept serve
		resolve   resolve
		inline    bool
		answers   int // -1 if there is no reply
		want      []string
	}{
		{name: "next", intercept: next, answers: 2,
			want: []string{"down above", "down interceptor", "down between", "intercept", "up between", "up interceptor", "up above"}},
		{name: "next with records", intercept: func(q *Query) Verdict { addresses(1)(q); return Next }, answers: 2,
			want: []string{"down above", "down interceptor", "down between", "intercept", "up between", "up interceptor", "up above"}},
		{name: "done", intercept: addresses(1), inline: true, answers: 1, want: intercepted},
		{name: "drop", intercept: func(*Query) Verdict { return Drop }, inline: true, answers: -1, want: intercepted},
		{name: "wait", intercept: waits, resolve: func(_ context.Context, q *Query) error { addresses(1)(q); return nil }, answers: 1, want: intercepted},
		{name: "wait, then the handlers below", intercept: waits, resolve: func(ctx context.Context, q *Query) error { q.Next(ctx); return nil }, answers: 2,
			want: []string{"down above", "down interceptor", "down between", "intercept", "up between", "down between", "up between", "up above"}},
	} {
		for _, parked := range []bool{false, true} {
			var path []string
			h := &interceptor{to: &path, intercept: test.intercept, resolve: test.resolve}
			between := trace{"between", &path, func(q *Query) Verdict { q.AA, q.RA = true, true; return Next }}
			c := chain(trace{"above", &path, next}, h, between, wait)
			if parked {
				parkFirst(c)
			}
			r := newRig(t, 10, map[string]*Chain{".": c})
			outcome, m := r.ask(newQuery("example.org", 1))
			if outcome == Parked {
				m = r.wait()
			}
			if inline := outcome != Parked; inline != (test.inline && !parked) {
				t.Errorf("%s (parked %v): answered inline: got %v, want %v", test.name, parked, inline, !inline)
			}
			switch {
			case m == nil && test.answers >= 0:
				t.Errorf("%s (parked %v): got no reply, want %d records", test.name, parked, test.answers)
			case m != nil && (len(m.Answer) != test.answers || m.RecursionAvailable && test.inline):
				t.Errorf("%s (parked %v): got %v, want %d records", test.name, parked, m, test.answers)
			}
			if !slices.Equal(path, test.want) {
				t.Errorf("%s (parked %v):\n got %q\nwant %q", test.name, parked, path, test.want)
			}
			if h.below != 2 {
				t.Errorf("%s (parked %v): InterceptDNS was called for %d steps below, want 2", test.name, parked, h.below)
			}
		}
	}
}

// The nearest Interceptor decides first. One above it sees the query if that one
// waits.
func TestInterceptorAboveInterceptor(t *testing.T) {
	for _, test := range []struct {
		name    string
		inner   serve
		outer   serve
		answers int
		want    []string
	}{
		{"inner answers", addresses(1), addresses(3), 1, []string{"down interceptor", "down interceptor", "intercept", "up interceptor"}},
		{"inner passes", next, addresses(3), 3, []string{"down interceptor", "down interceptor", "intercept", "intercept", "up interceptor"}},
		{"inner waits", func(*Query) Verdict { return Wait }, addresses(3), 3, []string{"down interceptor", "down interceptor", "intercept", "intercept"}},
	} {
		var path []string
		outer, inner := &interceptor{to: &path, intercept: test.outer}, &interceptor{to: &path, intercept: test.inner}
		r := newRig(t, 10, map[string]*Chain{".": chain(outer, inner, resolve(func(context.Context, *Query) error { return nil }))})
		if m := r.answer(newQuery("example.org", 1)); len(m.Answer) != test.answers {
			t.Errorf("%s: got %v, want %d records", test.name, m, test.answers)
		}
		if !slices.Equal(path, test.want) {
			t.Errorf("%s:\n got %q\nwant %q", test.name, path, test.want)
		}
	}
}

// Query.Next considers only the Interceptors below the handler that calls it.
func TestInterceptorAboveResolver(t *testing.T) {
	var path []string
	h := &interceptor{to: &path, intercept: addresses(1)}
	c := chain(h, resolve(func(ctx context.Context, q *Query) error { q.Next(ctx); return nil }), serveAndResolve{
		serve(func(*Query) Verdict { return Wait }), resolve(func(_ context.Context, q *Query) error { addresses(2)(q); return nil }),
	})
	r := newRig(t, 10, map[string]*Chain{".": c})
	if m := r.answer(newQuery("example.org", 1)); len(m.Answer) != 1 {
		t.Errorf("intercepted: got %v, want one record", m)
	}
	h.intercept = next
	path = nil
	if m := r.answer(newQuery("example.org", 1)); len(m.Answer) != 2 {
		t.Errorf("not intercepted: got %v, want two records", m)
	}
	if want := []string{"down interceptor", "intercept", "up interceptor"}; !slices.Equal(path, want) {
		t.Errorf("got %q, want %q", path, want)
	}
}

// A standIn is an interceptor that waits, and answers a query for which there is no place.
type standIn struct{ *interceptor }

func (h standIn) FinishDNS(q *Query) {
	h.interceptor.FinishDNS(q)
	if _, unparked := errors.AsType[ParkingError](q.Err); unparked {
		q.RCode, q.Err = wire.NoError, nil
		addresses(1)(q)
	}
}

// subAwaiter is an Awaiter that needs the answer to a sub-query for another name.
type subAwaiter struct{ awaitingNext }

func (subAwaiter) Resolve(ctx context.Context, q *Query) error {
	q.FollowCNAME(q.ResolveSubQuery(ctx, []byte("\x03sub\x00"), wire.TypeA))
	return nil
}

// An Interceptor that waits may answer if there is no place for the query: FinishDNS is called once, at any place of
// the query in its chain, before those of the handlers above.
func TestInterceptorWithoutPlace(t *testing.T) {
	for _, test := range []struct {
		name  string
		room  int // an Awaiter has a place in a lot for one query, and no stack
		above any // in the chain
		sub   bool
	}{
		{"client's query", 0, serve(next), false},
		{"below an Awaiter", 1, awaitingNext{}, false},
		{"sub-query of an Awaiter", 1, subAwaiter{}, true},
	} {
		var path []string
		h := standIn{&interceptor{to: &path, intercept: func(*Query) Verdict { return Wait }, resolve: func(context.Context, *Query) error { return errTest }}}
		below := []any{trace{"above", &path, next}, h, resolve(func(context.Context, *Query) error { return errTest })}
		routes := map[string]*Chain{".": chain(append([]any{test.above}, below...)...)}
		if test.sub {
			routes = map[string]*Chain{".": chain(test.above), "sub.": chain(below...)}
		}
		r := newRig(t, test.room, routes)
		if m := r.answer(newQuery("example.org", 1)); m.Rcode != int(wire.NoError) || len(m.Answer) != 1 {
			t.Errorf("%s: got %v, want one record", test.name, m)
		}
		if want := []string{"down above", "down interceptor", "intercept", "up interceptor", "up above"}; !slices.Equal(path, want) {
			t.Errorf("%s:\n got %q\nwant %q", test.name, path, want)
		}
		r.lot.Close(t.Context())
		if n := r.lot.used.Load(); n != 0 {
			t.Errorf("%s: %d places are in use after the reply, want none", test.name, n)
		}
	}
}

// An Interceptor is not called if a handler below it has changed the question, and
// is called if a handler above it has.
func TestInterceptorChangedQuestion(t *testing.T) {
	for below, want := range map[bool][]string{
		true:  {"down interceptor", "up interceptor"},
		false: {"down interceptor", "intercept", "up interceptor"},
	} {
		var path []string
		h := &interceptor{to: &path, intercept: next}
		change := questionReplacer{}
		wait := serveAndResolve{
			serve(func(*Query) Verdict { return Wait }),
			resolve(func(_ context.Context, q *Query) error { addresses(1)(q); return nil }),
		}
		c := chain(change, h, wait)
		if below {
			c = chain(h, change, wait)
		}
		r := newRig(t, 10, map[string]*Chain{".": c})
		if m := r.answer(newQuery("example.org", 1)); len(m.Answer) != 1 {
			t.Errorf("changed below %v: got %v, want one record", below, m)
		}
		if !slices.Equal(path, want) {
			t.Errorf("changed below %v: got %q, want %q", below, path, want)
		}
	}
}

// questionReplacer replaces the question for the handlers below it.
type questionReplacer struct{}

func (questionReplacer) ServeDNS(q *Query) Verdict {
	q.SetQuestion([]byte("\x05other\x00"), wire.TypeA, wire.ClassIN)
	return Next
}

func (questionReplacer) FinishDNS(q *Query) { q.RestoreQuestion(nil) }

// The handlers of an abandoned sub-query see SERVFAIL without records, even if a
// handler has written a part of the answer.
func TestAbandonedSubQueryFails(t *testing.T) {
	var seen []string
	half := serveAndResolve{
		serve(func(*Query) Verdict { return Wait }),
		resolve(func(_ context.Context, q *Query) error {
			addresses(1)(q)
			q.Cacheable = true
			panic("incomplete")
		}),
	}
	finish := finisher(func(q *Query) {
		seen = append(seen, fmt.Sprintf("%v cacheable %v empty %v step %d", q.RCode, q.Cacheable, q.Answer.Empty(), q.AnsweredStep()))
	})
	asks := serveAndResolve{
		serve(func(q *Query) Verdict {
			q.SubQuery([]byte("\x03sub\x00"), wire.TypeA)
			return Wait
		}),
		resolve(func(ctx context.Context, q *Query) error { q.ResumeSubQuery(ctx); return errors.New("not reached") }),
	}
	r := newRig(t, 10, map[string]*Chain{".": chain(asks), "sub.": chain(finish, half)})
	if m := r.answer(newQuery("example.org", 1)); m.Rcode != int(wire.ServFail) {
		t.Errorf("got %v, want SERVFAIL", m)
	}
	if want := []string{"SERVFAIL cacheable false empty true step -1"}; !slices.Equal(seen, want) {
		t.Errorf("the finisher above the handler that panicked saw %q, want %q", seen, want)
	}
}

type finisher func(q *Query)

func (f finisher) ServeDNS(*Query) Verdict { return Next }
func (f finisher) FinishDNS(q *Query)      { f(q) }

// Now is constant while the query is with its reader, and the current time in a
// parked query and its sub-queries.
func TestQueryNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var before, after, sub time.Duration
		start := time.Now()
		asks := serveAndResolve{
			serve(func(q *Query) Verdict { before = q.Now().Sub(start); return Wait }),
			resolve(func(_ context.Context, q *Query) error {
				time.Sleep(time.Second)
				after = q.Now().Sub(start)
				q.SubQuery([]byte("\x03sub\x00"), wire.TypeA)
				return nil
			}),
		}
		r := newRig(t, 10, map[string]*Chain{
			".":    chain(asks),
			"sub.": chain(serve(func(q *Query) Verdict { sub = q.Now().Sub(start); return Done })),
		})
		r.answer(newQuery("example.org", 1))
		if before != 0 || after != time.Second || sub != time.Second {
			t.Errorf("since Start: got %v in ServeDNS, %v in Resolve, %v in the sub-query; want 0s, 1s, 1s", before, after, sub)
		}
	})
}
