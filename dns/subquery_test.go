package dns

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// aliases maps names to the targets of their CNAME records, which it follows. The
// target "address" is an A record.
type aliases map[string]string

func (h aliases) ServeDNS(q *Query) Verdict {
	target, ok := h[wire.Name(q.Name()).String()]
	if !ok {
		q.RCode = wire.NXDomain
		return Done
	}
	if target == "address" {
		return addresses(1)(q)
	}
	name, _ := wire.ParseName(target)
	q.Answer.Buf = wire.AppendRecordHeader(q.Answer.Buf, wire.OwnerIsQuestion, wire.TypeCNAME, 5, len(name))
	q.Answer.Buf = append(q.Answer.Buf, name...)
	q.Answer.Count[wire.Answers]++
	sub, ok := q.SubQuery([]byte(name), q.Type)
	if !ok {
		return Wait
	}
	h.add(q, sub)
	return Done
}

func (h aliases) Resolve(ctx context.Context, q *Query) error {
	h.add(q, q.ResumeSubQuery(ctx))
	return nil
}

func (h aliases) add(q, sub *Query) {
	q.RCode, q.Err = sub.RCode, sub.Err
	off := sub.Answer.RecordsOffset()
	for range sub.Answer.Count[wire.Answers] {
		off, _ = q.Answer.AppendRecord(wire.Answers, sub.Answer.Buf, off)
	}
}

func TestSubQuery(t *testing.T) {
	long := aliases{}
	for i := range 12 {
		long[fmt.Sprintf("n%d.zone.", i)] = fmt.Sprintf("n%d.zone.", i+1)
	}
	for _, c := range []struct {
		name  string
		h     aliases
		ask   string
		rcode int
		want  []string
	}{
		{"one step", aliases{"a.zone.": "b.zone.", "b.zone.": "address"}, "a.zone", 0, []string{"a.zone.", "b.zone."}},
		{"missing target", aliases{"a.zone.": "b.zone."}, "a.zone", mdns.RcodeNameError, []string{"a.zone."}},
		{"loop of two", aliases{"a.zone.": "b.zone.", "b.zone.": "a.zone."}, "a.zone", mdns.RcodeServerFailure, []string{"a.zone.", "b.zone."}},
		{"loop of one", aliases{"a.zone.": "a.zone."}, "a.zone", mdns.RcodeServerFailure, []string{"a.zone."}},
		{"too many steps", long, "n0.zone", mdns.RcodeServerFailure, []string{"n0.zone.", "n1.zone.", "n2.zone.", "n3.zone.", "n4.zone.", "n5.zone.", "n6.zone.", "n7.zone.", "n8.zone."}},
		{"target not served", aliases{"a.zone.": "b.elsewhere."}, "a.zone", mdns.RcodeRefused, []string{"a.zone."}},
	} {
		for _, parked := range []bool{false, true} {
			observed := make(chan string, 10)
			ch := chain(c.h)
			ch.Observe(observe(func(q *Query) { observed <- string(wire.Name(q.Name()).String()) }))
			if parked {
				parkFirst(ch)
			}
			r := newRig(t, 10, map[string]*Chain{"zone": ch})
			reply := r.answer(newQuery(c.ask, mdns.TypeA))
			var owners []string
			for _, rr := range reply.Answer {
				owners = append(owners, rr.Header().Name)
			}
			if reply.Rcode != c.rcode || strings.Join(owners, " ") != strings.Join(c.want, " ") {
				t.Errorf("%s (parked %v): got %s with records of %q, want %s with %q", c.name, parked,
					mdns.RcodeToString[reply.Rcode], owners, mdns.RcodeToString[c.rcode], c.want)
			}
			r.lot.Close(context.Background())
			if n := len(observed); n != 1 {
				t.Errorf("%s (parked %v): %d queries were observed, want 1, the client's", c.name, parked, n)
			}
		}
	}
}

// The Mux finds the chain of a sub-query as for a client's query: by the longest
// zone.
func TestSubQueryOtherZone(t *testing.T) {
	peer := make(chan string, 1)
	r := newRig(t, 1, map[string]*Chain{
		"zone": chain(aliases{"a.zone.": "b.sub.zone."}),
		"sub.zone": chain(serve(func(q *Query) Verdict {
			peer <- q.Peer.String()
			return addresses(1)(q)
		})),
	})
	reply := r.answer(newQuery("a.zone", mdns.TypeA))
	if len(reply.Answer) != 2 {
		t.Errorf("got %v, want the CNAME and an address", reply)
	}
	if got := <-peer; got != "invalid AddrPort" { // the rig sets no address
		t.Errorf("the sub-query's client is %s, want that of the query", got)
	}
}

// A panic in a sub-query makes the client's answer SERVFAIL, and the finishers of
// both queries run.
func TestSubQueryPanic(t *testing.T) {
	var log []string
	r := newRig(t, 1, map[string]*Chain{
		"zone":     chain(trace{"outer", &log, next}, aliases{"a.zone.": "b.sub.zone."}),
		"sub.zone": chain(trace{"inner", &log, next}, serve(func(*Query) Verdict { panic("broken") })),
	})
	reply := r.answer(newQuery("a.zone", mdns.TypeA))
	if got := strings.Join(log, ", "); reply.Rcode != mdns.RcodeServerFailure || got != "down outer, down inner, up inner, up outer" {
		t.Errorf("got %s, walked %s; want SERVFAIL, walked down outer, down inner, up inner, up outer", mdns.RcodeToString[reply.Rcode], got)
	}
}

func TestSubQueryAllocations(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{"zone": chain(subQuerier{}), "sub": chain(serve(addresses(1)))})
	packet, _ := newQuery("a.zone", mdns.TypeA).Pack()
	q, lent := NewQuery(r), make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(1000, func() {
		q.Reset(packet, UDP, q.Start)
		r.port.Serve(q, lent)
	}); n != 0 {
		t.Errorf("a query with a sub-query allocates %v times, want 0", n)
	}
}

type subQuerier struct{}

func (subQuerier) ServeDNS(q *Query) Verdict {
	const target = "\x01b\x03sub\x00"
	q.SubQuery([]byte(target), q.Type)
	return Done
}

// A query keeps the memory of a small answer to a sub-query for the next query,
// and frees the memory of a large one.
func TestSubQueryFreesLargeAnswer(t *testing.T) {
	for n, kept := range map[int]bool{3: true, 4000: false} {
		r := newRig(t, 1, map[string]*Chain{"zone": chain(subQuerier{}), "sub": chain(serve(addresses(n)))})
		packet, _ := newQuery("a.zone", mdns.TypeA).Pack()
		q := NewQuery(r)
		q.Reset(packet, UDP, q.Start)
		r.port.Serve(q, nil)
		if got := len(q.sub.Answer.Records()); got != 16*n {
			t.Fatalf("%d records: got %d bytes, want %d", n, got, 16*n)
		}
		q.Observe(time.Now())
		if got := cap(q.sub.Answer.Buf) > 0; got != kept {
			t.Errorf("%d records: kept %v, want %v", n, got, kept)
		}
	}
}

// The depth of a client's query is zero; each sub-query is one deeper than its
// parent.
func TestSubQueryDepth(t *testing.T) {
	var depths []int
	ask := serve(func(q *Query) Verdict {
		depths = append(depths, q.Depth())
		if q.Labels() > 1 {
			q.SubQuery(q.Name()[q.LabelOffset(1):], wire.TypeA)
		}
		return Done
	})
	newRig(t, 1, map[string]*Chain{".": chain(ask)}).ask(newQuery("a.b.c.", 1))
	if want := []int{0, 1, 2}; !slices.Equal(depths, want) {
		t.Errorf("a.b.c. and its sub-queries: got depths %v, want %v", depths, want)
	}
}
