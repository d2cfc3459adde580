package dns

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// A testTracer follows the queries for names that begin with t.
type testTracer struct {
	asked    int
	observed []string
}

func (t *testTracer) TraceDNS(q *Query) Trace {
	t.asked++
	if q.Name()[1] != 't' {
		return nil
	}
	return &testTrace{}
}

func (t *testTracer) ObserveDNS(q *Query) {
	t.observed = append(t.observed, strings.Join(q.Trace().(*testTrace).events, " ")+" "+q.RCode.String())
}

type testTrace struct{ events []string }

func (t *testTrace) add(q *Query, what string) {
	t.events = append(t.events, strings.Repeat("sub-", q.Depth())+what)
}

func (t *testTrace) BeginStep(q *Query, step int, directive string) {
	t.add(q, fmt.Sprintf("begin-%d-%s", step, directive))
}
func (t *testTrace) EndStep(q *Query, step int, _ Verdict) { t.add(q, fmt.Sprintf("end-%d", step)) }
func (t *testTrace) ObserveExchange(*Query, *Exchange)     {}

// fragile panics for names that begin with tp, waits for those with tw, and fails to for tf.
type fragile struct{}

func (fragile) ServeDNS(q *Query) Verdict {
	switch string(q.Name()[1:3]) {
	case "tp":
		panic("test")
	case "td":
		return Drop
	case "tw", "uw", "tf":
		return Wait
	}
	q.RCode = wire.NXDomain
	return Done
}

func (fragile) Resolve(_ context.Context, q *Query) error {
	if q.Name()[2] == 'f' {
		return errors.New("test")
	}
	return nil
}

// Only followed queries have events: the events of each handler in the order of its calls. A
// query that waits, panics or is dropped is observed, too.
func TestTracer(t *testing.T) {
	const down = "begin-0-h0 end-0 begin-1-h1 end-1 begin-2-h2 "
	for name, want := range map[string]string{
		"u.example.":  "",
		"uw.example.": "",
		"tn.example.": down + "end-2 end-0 NXDOMAIN",
		"tp.example.": down + "end-0 SERVFAIL",
		"td.example.": down + "end-2 end-0 NOERROR",
		"tw.example.": down + "end-2 end-2 end-0 NOERROR",
		"tf.example.": down + "end-2 end-2 end-0 SERVFAIL",
	} {
		c := chain(trace{"a", new([]string), next}, serve(next), fragile{})
		tracer := &testTracer{}
		seen := 0
		c.Observe(tracer)
		c.Observe(observe(func(*Query) { seen++ }))
		r := newRig(t, 10, map[string]*Chain{".": c.CopyFor("dns://:53", ".")})
		r.ask(newQuery(name, mdns.TypeA))
		r.lot.Close(t.Context())
		if got := strings.Join(tracer.observed, ""); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		if tracer.asked != 1 || seen != 1 {
			t.Errorf("%s: got %d calls of TraceDNS and %d of another observer, want 1", name, tracer.asked, seen)
		}
	}
}

// The trace of a query follows its sub-queries, also those behind a zone without a tracer.
func TestTracerSubQueries(t *testing.T) {
	names := aliases{"t.example.": "a.plain.", "a.plain.": "b.example.", "b.example.": "address", "u.example.": "b.example."}
	tracer := &testTracer{}
	traced := chain(names)
	traced.Observe(tracer)
	r := newRig(t, 10, map[string]*Chain{"example.": traced.CopyFor("dns://:53", "example."), "plain.": chain(names)})
	for _, name := range []string{"u.example.", "t.example.", "u.example."} {
		if reply := r.answer(newQuery(name, mdns.TypeA)); len(reply.Answer) < 2 {
			t.Errorf("%s: got %v, want an address", name, reply.Answer)
		}
	}
	want := "begin-0-h0 sub-sub-begin-0-h0 sub-sub-end-0 end-0 NOERROR"
	if got := strings.Join(tracer.observed, ""); got != want || tracer.asked != 3 {
		t.Errorf("got %q and %d calls of TraceDNS, want %q and 3", got, tracer.asked, want)
	}
}

// A tracer costs queries that it does not follow one call.
func TestTracerAllocations(t *testing.T) {
	c := chain(serve(next), addresses(1))
	c.Observe(&testTracer{})
	r := newRig(t, 10, map[string]*Chain{".": c.CopyFor("dns://:53", ".")})
	packet, err := newQuery("u.example.", mdns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	q, lent := NewQuery(r), make([]byte, 0, 1<<12)
	if n := testing.AllocsPerRun(100, func() {
		q.Reset(packet, UDP, time.Unix(0, 0))
		r.port.Serve(q, lent)
		q.Observe(time.Unix(0, 0))
	}); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}
