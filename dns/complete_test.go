package dns

import (
	"context"
	"errors"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// completer is a Completer that logs its calls.
type completer struct {
	name  string
	to    *[]string
	waits bool
	err   error
}

func (h completer) ServeDNS(*Query) Verdict { return Next }

func (h completer) CompleteDNS(*Query) Verdict {
	*h.to = append(*h.to, "complete "+h.name)
	if h.waits {
		return Wait
	}
	return Done
}

func (h completer) Resolve(_ context.Context, q *Query) error {
	*h.to = append(*h.to, "resolve "+h.name)
	if h.err == nil {
		addresses(1)(q)
	}
	return h.err
}

func TestCompleter(t *testing.T) {
	var log []string
	up := func(name string) trace { return trace{name, &log, func(*Query) Verdict { return Next }} }
	wait := serveAndResolve{func(*Query) Verdict { return Wait }, func(_ context.Context, q *Query) error { addresses(1)(q); return nil }}
	drop := serve(func(*Query) Verdict { return Drop })
	for _, c := range []struct {
		name    string
		chain   []any
		outcome Outcome
		records int
		rcode   int
		want    string
	}{
		{"done", []any{up("a"), completer{"c", &log, false, nil}, addresses(1)}, Answered, 1, 0, "down a, complete c, up a"},
		{"waits", []any{up("a"), completer{"c", &log, true, nil}, up("b"), addresses(1)}, Parked, 2, 0, "down a, down b, up b, complete c, resolve c, up a"},
		{"two wait", []any{completer{"c", &log, true, nil}, up("a"), completer{"d", &log, true, nil}, addresses(1)}, Parked, 3, 0, "down a, complete d, resolve d, up a, complete c, resolve c"},
		{"above a handler that waits", []any{up("a"), completer{"c", &log, true, nil}, wait}, Parked, 2, 0, "down a, complete c, resolve c, up a"},
		{"fails", []any{up("a"), completer{"c", &log, true, errors.New("broken")}, addresses(1)}, Parked, 0, mdns.RcodeServerFailure, "down a, complete c, resolve c, up a"},
		{"dropped", []any{up("a"), completer{"c", &log, true, nil}, drop}, Dropped, 0, 0, "down a, up a"},
		{"no handler answers", []any{up("a"), completer{"c", &log, false, nil}}, Answered, 0, mdns.RcodeServerFailure, "down a, complete c, up a"},
	} {
		log = nil
		r := newRig(t, 10, map[string]*Chain{"zone": chain(c.chain...)})
		outcome, reply := r.ask(newQuery("a.zone", mdns.TypeA))
		if outcome == Parked {
			reply = r.wait()
		}
		if outcome != c.outcome || strings.Join(log, ", ") != c.want {
			t.Errorf("%s: got outcome %d after %s; want %d after %s", c.name, outcome, strings.Join(log, ", "), c.outcome, c.want)
		}
		if reply != nil && (len(reply.Answer) != c.records || reply.Rcode != c.rcode) {
			t.Errorf("%s: got\n%v\nwant %s with %d records", c.name, reply, mdns.RcodeToString[c.rcode], c.records)
		}
		r.lot.Close(context.Background())
	}
}

// The finishers above a Completer run even if there is no place to wait.
func TestCompleterLotFull(t *testing.T) {
	var log []string
	r := newRig(t, 0, map[string]*Chain{"zone": chain(trace{"a", &log, next}, completer{"c", &log, true, nil}, addresses(1))})
	outcome, reply := r.ask(newQuery("a.zone", mdns.TypeA))
	if outcome != Answered || reply.Rcode != mdns.RcodeServerFailure || strings.Join(log, ", ") != "down a, complete c, up a" {
		t.Errorf("got outcome %d with\n%v\nafter %s; want SERVFAIL after down a, complete c, up a", outcome, reply, strings.Join(log, ", "))
	}
}

// AnsweredBy names the handler that answered, not the Completer that waited.
func TestCompleterAnsweredBy(t *testing.T) {
	var log []string
	by := make(chan string, 1)
	ch := chain(completer{"c", &log, true, nil}, addresses(1))
	ch.Observe(observe(func(q *Query) { by <- q.AnsweredBy() }))
	r := newRig(t, 10, map[string]*Chain{"zone": ch})
	r.answer(newQuery("a.zone", mdns.TypeA))
	if got := <-by; got != "h1" {
		t.Errorf("AnsweredBy: got %s, want h1", got)
	}
}

// A sub-query waits at a Completer like a query.
func TestCompleterSubQuery(t *testing.T) {
	var log []string
	r := newRig(t, 10, map[string]*Chain{
		"zone": chain(completer{"outer", &log, true, nil}, aliases{"a.zone.": "b.sub.zone."}),
		"sub.zone": chain(completer{"inner", &log, true, nil}, serve(func(q *Query) Verdict {
			q.RCode = wire.NoError
			return addresses(1)(q)
		})),
	})
	reply := r.answer(newQuery("a.zone", mdns.TypeA))
	if got := strings.Join(log, ", "); len(reply.Answer) != 4 || got != "complete inner, resolve inner, complete outer, resolve outer" {
		t.Errorf("got\n%v\nafter %s; want 4 records after complete inner, resolve inner, complete outer, resolve outer", reply, got)
	}
}
