package dns

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// aliases answers from a map of names to targets, each a CNAME; a target
// beginning with a digit is an address. It chases as package kube does.
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

func TestAsk(t *testing.T) {
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
		{"too deep", long, "n0.zone", mdns.RcodeServerFailure, []string{"n0.zone.", "n1.zone.", "n2.zone.", "n3.zone.", "n4.zone.", "n5.zone.", "n6.zone.", "n7.zone.", "n8.zone."}},
		{"nobody serves it", aliases{"a.zone.": "b.elsewhere."}, "a.zone", mdns.RcodeRefused, []string{"a.zone."}},
	} {
		for _, slow := range []bool{false, true} {
			observed := make(chan string, 10)
			ch := chain(c.h)
			ch.Observe(observe(func(q *Query) { observed <- string(wire.Name(q.Name()).String()) }))
			if slow {
				parkFirst(ch)
			}
			r := newRig(t, 10, map[string]*Chain{"zone": ch})
			reply := r.answer(question(c.ask, mdns.TypeA))
			var owners []string
			for _, rr := range reply.Answer {
				owners = append(owners, rr.Header().Name)
			}
			if reply.Rcode != c.rcode || strings.Join(owners, " ") != strings.Join(c.want, " ") {
				t.Errorf("%s (slow %v): got %s with records of %q, want %s with %q", c.name, slow,
					mdns.RcodeToString[reply.Rcode], owners, mdns.RcodeToString[c.rcode], c.want)
			}
			r.lot.Close(context.Background())
			if n := len(observed); n != 1 {
				t.Errorf("%s (slow %v): %d queries were observed, want only the client's", c.name, slow, n)
			}
		}
	}
}

// A sub-query is put to the Mux with the client's address: the longest
// zone answers it, whatever chain asked.
func TestAskGoesThroughTheMux(t *testing.T) {
	peer := make(chan string, 1)
	r := newRig(t, 1, map[string]*Chain{
		"zone": chain(aliases{"a.zone.": "b.sub.zone."}),
		"sub.zone": chain(serve(func(q *Query) Verdict {
			peer <- q.Peer.String()
			return addresses(1)(q)
		})),
	})
	reply := r.answer(question("a.zone", mdns.TypeA))
	if len(reply.Answer) != 2 {
		t.Errorf("got %v, want the CNAME and an address", reply)
	}
	if got := <-peer; got != "invalid AddrPort" { // the rig gives none
		t.Errorf("the sub-query comes from %s", got)
	}
}

// A panic under a sub-query is the client's SERVFAIL, and the finishers
// of both questions run.
func TestAskPanics(t *testing.T) {
	var log []string
	r := newRig(t, 1, map[string]*Chain{
		"zone":     chain(trace{"outer", &log, next}, aliases{"a.zone.": "b.sub.zone."}),
		"sub.zone": chain(trace{"inner", &log, next}, serve(func(*Query) Verdict { panic("broken") })),
	})
	reply := r.answer(question("a.zone", mdns.TypeA))
	if got := strings.Join(log, ", "); reply.Rcode != mdns.RcodeServerFailure || got != "down outer, down inner, up inner, up outer" {
		t.Errorf("got %s, walked %s", mdns.RcodeToString[reply.Rcode], got)
	}
}

func TestAskAllocatesNothing(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{"zone": chain(asker{}), "sub": chain(serve(addresses(1)))})
	packet, _ := question("a.zone", mdns.TypeA).Pack()
	q, lent := NewQuery(r), make([]byte, 0, 4096)
	room := append(q.Buffer(len(packet))[:0], packet...)
	if n := testing.AllocsPerRun(1000, func() {
		q.Reset(room, UDP, q.Start)
		r.port.Serve(q, lent)
	}); n != 0 {
		t.Errorf("a query with a sub-query allocates %v times", n)
	}
}

type asker struct{}

func (asker) ServeDNS(q *Query) Verdict {
	const target = "\x01b\x03sub\x00"
	q.SubQuery([]byte(target), q.Type)
	return Done
}

// The memory of a large answer to a sub-query is let go with the query,
// that of a small one serves again.
func TestAskKeepsNoLargeAnswer(t *testing.T) {
	for n, kept := range map[int]bool{3: true, 4000: false} {
		r := newRig(t, 1, map[string]*Chain{"zone": chain(asker{}), "sub": chain(serve(addresses(n)))})
		packet, _ := question("a.zone", mdns.TypeA).Pack()
		q := NewQuery(r)
		q.Reset(append(q.Buffer(len(packet))[:0], packet...), UDP, q.Start)
		r.port.Serve(q, nil)
		if got := len(q.sub.Answer.Records()); got != 16*n {
			t.Fatalf("%d records: %d bytes", n, got)
		}
		q.Observe(time.Now())
		if got := cap(q.sub.own)+cap(q.sub.Answer.Buf) > 0; got != kept {
			t.Errorf("%d records: kept %v, want %v", n, got, kept)
		}
	}
}
