package dns

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/wire"
)

// joiner has q whenever it is asked, and answers when it is called again.
type joiner struct {
	to    *[]string
	word  StateKey
	takes bool
	below int
	again func(q *Query) Verdict
	resolve
}

func (j *joiner) ServeDNS(q *Query) Verdict {
	if q.State(j.word) != nil {
		*j.to = append(*j.to, "again")
		return j.again(q)
	}
	*j.to = append(*j.to, "down joiner")
	return Next
}

func (j *joiner) JoinDNS(q *Query, below int) bool {
	*j.to = append(*j.to, "join")
	j.below = below
	if j.takes {
		q.SetState(j.word, j)
	}
	return j.takes
}

func (j *joiner) FinishDNS(*Query) { *j.to = append(*j.to, "up joiner") }

// A Joiner may answer, or wait, in the place of those who say Wait below it;
// those between finish once for each time that they were passed.
func TestJoiner(t *testing.T) {
	wait := both{
		serve(func(q *Query) Verdict { _ = addresses(3)(q); return Wait }),
		resolve(func(_ context.Context, q *Query) error { q.Answer.Clear(); addresses(2)(q); return nil }),
	}
	for _, test := range []struct {
		name    string
		takes   bool
		again   func(q *Query) Verdict
		resolve resolve
		inline  bool
		answers int
		want    []string
	}{
		{name: "it has not", answers: 2, want: []string{"down above", "down joiner", "down between", "join", "up between", "up joiner", "up above"}},
		{name: "it has, and answers", takes: true, again: addresses(1), inline: true, answers: 1,
			want: []string{"down above", "down joiner", "down between", "join", "up between", "again", "up above"}},
		{name: "it has, and waits", takes: true, again: func(*Query) Verdict { return Wait },
			resolve: func(_ context.Context, q *Query) error { addresses(1)(q); return nil }, answers: 1,
			want: []string{"down above", "down joiner", "down between", "join", "up between", "again", "up above"}},
		{name: "it has, waits, and asks", takes: true, again: func(*Query) Verdict { return Wait },
			resolve: func(ctx context.Context, q *Query) error { q.Next(ctx); return nil }, answers: 2,
			want: []string{"down above", "down joiner", "down between", "join", "up between", "again", "down between", "up between", "up above"}},
		{name: "it has, and drops", takes: true, again: func(*Query) Verdict { return Drop }, inline: true, answers: -1,
			want: []string{"down above", "down joiner", "down between", "join", "up between", "again", "up above"}},
	} {
		for _, slow := range []bool{false, true} {
			var path []string
			j := &joiner{to: &path, takes: test.takes, again: test.again, resolve: test.resolve}
			c := chain(trace{"above", &path, next}, j, trace{"between", &path, func(q *Query) Verdict { q.AA, q.RA = true, true; return Next }}, wait)
			j.word = c.NewStateKey()
			if slow {
				c.Slow()
			}
			r := newRig(t, 10, map[string]*Chain{".": c})
			outcome, m := r.ask(question("example.org", 1))
			if outcome == Parked {
				m = r.wait()
			}
			if inline := outcome != Parked; inline != (test.inline && !slow) {
				t.Errorf("%s: slow %v: inline %v", test.name, slow, inline)
			}
			switch {
			case m == nil && test.answers >= 0:
				t.Errorf("%s: no reply", test.name)
			case m != nil && (len(m.Answer) != test.answers || m.RecursionAvailable && test.inline):
				t.Errorf("%s: slow %v: %v", test.name, slow, m)
			}
			if !slices.Equal(path, test.want) {
				t.Errorf("%s: slow %v:\n got %q\nwant %q", test.name, slow, path, test.want)
			}
			if j.below != 2 {
				t.Errorf("%s: %d steps below, want 2", test.name, j.below)
			}
		}
	}
}

// Handlers that ask for themselves have no Joiner between them and those below:
// only those that they ask from have.
func TestJoinerAboveResolver(t *testing.T) {
	var path []string
	j := &joiner{to: &path, takes: true, again: addresses(1)}
	c := chain(j, resolve(func(ctx context.Context, q *Query) error { q.Next(ctx); return nil }), both{
		serve(func(*Query) Verdict { return Wait }), resolve(func(_ context.Context, q *Query) error { addresses(2)(q); return nil }),
	})
	j.word = c.NewStateKey()
	r := newRig(t, 10, map[string]*Chain{".": c})
	if m := r.answer(question("example.org", 1)); len(m.Answer) != 1 {
		t.Errorf("the handler that always waits: %v", m)
	}
	j.takes = false
	path = nil
	if m := r.answer(question("example.org", 1)); len(m.Answer) != 2 {
		t.Errorf("not taken: %v", m)
	}
	if want := []string{"down joiner", "join", "up joiner"}; !slices.Equal(path, want) {
		t.Errorf("got %q, want %q", path, want)
	}
}

// A Joiner is asked about the question that it has seen: not if somebody below it
// has put another in its place, but if somebody above has.
func TestJoinerSeesItsQuestion(t *testing.T) {
	for below, want := range map[bool][]string{
		true:  {"down joiner", "up joiner"},
		false: {"down joiner", "join", "up joiner"},
	} {
		var path []string
		j := &joiner{to: &path}
		change := changes{}
		wait := both{
			serve(func(*Query) Verdict { return Wait }),
			resolve(func(_ context.Context, q *Query) error { addresses(1)(q); return nil }),
		}
		c := chain(change, j, wait)
		if below {
			c = chain(j, change, wait)
		}
		j.word = c.NewStateKey()
		r := newRig(t, 10, map[string]*Chain{".": c})
		if m := r.answer(question("example.org", 1)); len(m.Answer) != 1 {
			t.Errorf("below %v: %v", below, m)
		}
		if !slices.Equal(path, want) {
			t.Errorf("below %v: got %q, want %q", below, path, want)
		}
	}
}

// changes asks for another name.
type changes struct{}

func (changes) ServeDNS(q *Query) Verdict {
	q.SetQuestion([]byte("\x05other\x00"), wire.TypeA, wire.ClassIN)
	return Next
}

func (changes) FinishDNS(q *Query) { q.RestoreQuestion(nil) }

// A further question that is given up has no answer that its handlers could
// take for one, whatever was written of it.
func TestAbandonedHalf(t *testing.T) {
	var seen []bool
	half := both{
		serve(func(*Query) Verdict { return Wait }),
		resolve(func(_ context.Context, q *Query) error {
			addresses(1)(q)
			q.Cacheable = true
			panic("half way")
		}),
	}
	finish := finisher(func(q *Query) {
		seen = append(seen, q.Cacheable || q.RCode != wire.ServFail || !q.Answer.Empty() || q.AnsweredStep() >= 0)
	})
	asks := both{
		serve(func(q *Query) Verdict {
			q.SubQuery([]byte("\x03sub\x00"), wire.TypeA)
			return Wait
		}),
		resolve(func(ctx context.Context, q *Query) error { q.ResumeSubQuery(ctx); return errors.New("not reached") }),
	}
	r := newRig(t, 10, map[string]*Chain{".": chain(asks), "sub.": chain(finish, half)})
	if m := r.answer(question("example.org", 1)); m.Rcode != int(wire.ServFail) {
		t.Errorf("reply: %v", m)
	}
	if len(seen) != 1 || seen[0] {
		t.Errorf("the handler above saw an answer: %v", seen)
	}
}

type finisher func(q *Query)

func (f finisher) ServeDNS(*Query) Verdict { return Next }
func (f finisher) FinishDNS(q *Query)      { f(q) }

// The time stands still on the reader, and goes on for those that have left it
// and for what they ask.
func TestNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var before, after, sub time.Duration
		start := time.Now()
		asks := both{
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
		r.answer(question("example.org", 1))
		if before != 0 || after != time.Second || sub != time.Second {
			t.Errorf("%v, then %v and %v; want 0s, then 1s and 1s", before, after, sub)
		}
	})
}
