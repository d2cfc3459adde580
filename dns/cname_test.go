package dns

import (
	"bytes"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// addRecord adds a record in the syntax of a zone file. It writes out all names.
func addRecord(t *testing.T, q *Query, s wire.Section, text string) {
	t.Helper()
	rr, err := mdns.NewRR(text)
	if err != nil {
		t.Fatal(err)
	}
	room := make([]byte, 70000)
	n, err := mdns.PackRR(rr, room, 0, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	q.Answer.Append(s, room[:n], 1)
}

// cnameToB answers with a CNAME record to b.zone and follows it. It stores the
// result of FollowCNAME in served.
func cnameToB(t *testing.T, served *bool) serve {
	return func(q *Query) Verdict {
		q.AA = true
		addRecord(t, q, wire.Answers, "a.zone. 5 IN CNAME b.zone.")
		addRecord(t, q, wire.Authority, "zone. 5 IN TXT proof")
		addRecord(t, q, wire.Additional, "a.zone. 5 IN TXT extra")
		sub, ok := q.SubQuery([]byte("\x01b\x04zone\x00"), q.Type)
		if !ok {
			t.Error("SubQuery: got ok false, want true")
			return Drop
		}
		*served = q.FollowCNAME(sub)
		return Done
	}
}

func TestFollowCNAME(t *testing.T) {
	answer := func(t *testing.T, q *Query) {
		addRecord(t, q, wire.Answers, "b.zone. 5 IN A 10.0.0.1")
		addRecord(t, q, wire.Authority, "zone. 5 IN NS ns.zone.")
		addRecord(t, q, wire.Additional, "ns.zone. 5 IN A 10.0.0.9")
	}
	soa := func(t *testing.T, q *Query) {
		addRecord(t, q, wire.Authority, "zone. 5 IN SOA ns.zone. host.zone. 1 2 3 4 5")
		q.RCode = wire.NXDomain
	}
	for _, c := range []struct {
		what   string
		do     bool
		target func(t *testing.T, q *Query)
		rcode  int
		served bool
		want   string
	}{
		{"addresses without DO", false, answer, mdns.RcodeSuccess, true, "CNAME A | TXT | TXT"},
		{"addresses with DO", true, answer, mdns.RcodeSuccess, true, "CNAME A | TXT NS | TXT A"},
		{"another CNAME without a target", false, func(t *testing.T, q *Query) {
			addRecord(t, q, wire.Answers, "b.zone. 5 IN CNAME c.zone.")
			soa(t, q)
		}, mdns.RcodeNameError, true, "CNAME CNAME | TXT SOA | TXT"},
		{"a record that is in the answer already", true, func(t *testing.T, q *Query) {
			addRecord(t, q, wire.Answers, "b.zone. 5 IN A 10.0.0.1")
			addRecord(t, q, wire.Authority, "Zone. 5 IN TXT proof")
			addRecord(t, q, wire.Authority, "c.zone. 5 IN TXT proof")
		}, mdns.RcodeSuccess, true, "CNAME A | TXT TXT | TXT"},
		{"no such name", false, soa, mdns.RcodeNameError, true, "CNAME | TXT SOA | TXT"},
		{"SERVFAIL", false, func(_ *testing.T, q *Query) { q.RCode = wire.ServFail }, mdns.RcodeServerFailure, true, "CNAME | TXT | TXT"},
		{"not served", false, nil, mdns.RcodeSuccess, false, "CNAME | TXT | TXT"},
		{"malformed record", false, func(_ *testing.T, q *Query) {
			q.Answer.Append(wire.Answers, wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeCNAME, 5, 1), 0)
			q.Answer.Append(wire.Answers, []byte{0xFF}, 1)
		}, mdns.RcodeServerFailure, true, " |  | "},
	} {
		var served bool
		routes := map[string]*Chain{"a.zone": chain(cnameToB(t, &served))}
		if c.target != nil {
			routes["b.zone"] = chain(serve(func(q *Query) Verdict { c.target(t, q); return Done }))
		}
		m := newQuery("a.zone", mdns.TypeA)
		m.SetEdns0(1232, c.do)
		_, reply := newRig(t, 1, routes).ask(m)
		var sections []string
		for _, s := range [][]mdns.RR{reply.Answer, reply.Ns, reply.Extra} {
			var types []string
			for _, rr := range s {
				if rr.Header().Rrtype != mdns.TypeOPT {
					types = append(types, mdns.TypeToString[rr.Header().Rrtype])
				}
			}
			sections = append(sections, strings.Join(types, " "))
		}
		if got := strings.Join(sections, " | "); got != c.want || reply.Rcode != c.rcode || served != c.served {
			t.Errorf("target %s: got %s %q, served %v; want %s %q, %v", c.what, mdns.RcodeToString[reply.Rcode], got, served, mdns.RcodeToString[c.rcode], c.want, c.served)
		}
	}
}

// FollowCNAME copies no more records than fit into a reply, and the reply has TC.
func TestFollowCNAMELargeTarget(t *testing.T) {
	var served bool
	size := 0
	r := newRig(t, 1, map[string]*Chain{
		"a.zone": chain(serve(func(q *Query) Verdict {
			verdict := cnameToB(t, &served)(q)
			size = len(q.Answer.Buf)
			return verdict
		})),
		"b.zone": chain(serve(func(q *Query) Verdict {
			const each = 1000
			for range 100 {
				q.Answer.Append(wire.Answers, wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, 65280, 5, each), 0)
				q.Answer.Append(wire.Answers, bytes.Repeat([]byte{1}, each), 1)
			}
			return Done
		})),
	})
	if _, reply := r.ask(newQuery("a.zone", 65280)); !reply.Truncated || size > maxShrink*512+2000 {
		t.Errorf("100 KB of records: TC %v and %d bytes copied, want true and at most %d", reply.Truncated, size, maxShrink*512+2000)
	}
}

// An answer that lacks records for one client's size has TC already in the handler, so that a cache does not keep
// it for others. Additional records may lack.
func TestFollowCNAMEStopsAtLimit(t *testing.T) {
	for section, want := range map[wire.Section]bool{wire.Answers: true, wire.Authority: true, wire.Additional: false} {
		var served, tc bool
		r := newRig(t, 1, map[string]*Chain{
			"a.zone": chain(serve(func(q *Query) Verdict {
				verdict := cnameToB(t, &served)(q)
				tc = q.TC
				return verdict
			})),
			"b.zone": chain(serve(func(q *Query) Verdict {
				for range 150 {
					q.Answer.Append(section, wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeA, 5, 4), 0)
					q.Answer.Append(section, []byte{192, 0, 2, 1}, 1)
				}
				return Done
			})),
		})
		r.ask(newQuery("a.zone", mdns.TypeMX))
		if tc != want {
			t.Errorf("150 records in section %d: got TC %v, want %v", section, tc, want)
		}
	}
}

// If the answer for the target is truncated, so is the whole answer.
func TestFollowCNAMETruncatedTarget(t *testing.T) {
	var served bool
	r := newRig(t, 1, map[string]*Chain{
		"a.zone": chain(cnameToB(t, &served)),
		"b.zone": chain(serve(func(q *Query) Verdict { q.TC = true; return Done })),
	})
	if _, reply := r.ask(newQuery("a.zone", mdns.TypeA)); !reply.Truncated {
		t.Errorf("got no TC, want TC: %v", reply)
	}
}
