package forward

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A DNAME record leads to its target also without the CNAME record that it makes, or with another one.
func TestDNAMEWithoutCNAME(t *testing.T) {
	const dname = "example. 60 IN DNAME test."
	long := strings.Repeat(strings.Repeat("x", 60)+".", 4)
	cases := map[string]struct {
		name    string
		qtype   uint16
		records []string
		want    []string // the answers
		code    wire.RCode
	}{
		"with the target's address": {"w.example.", mdns.TypeA,
			[]string{dname, "w.test. 60 IN A 192.0.2.1"},
			[]string{dname, "w.example. 60 IN CNAME w.test.", "w.test. 60 IN A 192.0.2.1"}, 0},
		"the target first": {"w.example.", mdns.TypeA,
			[]string{"w.test. 60 IN A 192.0.2.1", dname},
			[]string{dname, "w.example. 60 IN CNAME w.test.", "w.test. 60 IN A 192.0.2.1"}, 0},
		"several labels": {"a.b.example.", mdns.TypeA,
			[]string{dname, "a.b.test. 60 IN A 192.0.2.1"},
			[]string{dname, "a.b.example. 60 IN CNAME a.b.test.", "a.b.test. 60 IN A 192.0.2.1"}, 0},
		"two, and a CNAME record": {"w.example.", mdns.TypeA,
			[]string{"c.invalid. 60 IN CNAME d.org.", "test. 9 IN DNAME invalid.", "w.test. 60 IN CNAME c.test.", "d.org. 60 IN A 192.0.2.1", dname,
				"invalid. 60 IN DNAME org."},
			[]string{dname, "w.example. 60 IN CNAME w.test.", "test. 9 IN DNAME invalid.", "w.test. 9 IN CNAME w.invalid.",
				"invalid. 60 IN DNAME org.", "w.invalid. 60 IN CNAME w.org."}, 0},
		"of a CNAME record's target": {"w.org.", mdns.TypeA,
			[]string{"w.org. 60 IN CNAME w.example.", dname, "w.test. 60 IN A 192.0.2.1"},
			[]string{"w.org. 60 IN CNAME w.example.", dname, "w.example. 60 IN CNAME w.test.", "w.test. 60 IN A 192.0.2.1"}, 0},
		"another CNAME record": {"w.example.", mdns.TypeA,
			[]string{"w.example. 60 IN CNAME evil.org.", "evil.org. 60 IN A 192.0.2.66", dname, "w.test. 60 IN A 192.0.2.1"},
			[]string{dname, "w.example. 60 IN CNAME w.test.", "w.test. 60 IN A 192.0.2.1"}, 0},
		"the CNAME record in another letter case": {"w.example.", mdns.TypeA,
			[]string{dname, "w.example. 60 IN CNAME W.TEST.", "w.test. 60 IN A 192.0.2.1"},
			[]string{dname, "w.example. 60 IN CNAME W.TEST.", "w.test. 60 IN A 192.0.2.1"}, 0},
		"query for CNAME": {"w.example.", mdns.TypeCNAME, []string{dname},
			[]string{dname, "w.example. 60 IN CNAME w.test."}, 0},
		"query for ANY": {"w.example.", mdns.TypeANY, []string{dname},
			[]string{dname, "w.example. 60 IN CNAME w.test."}, 0},
		"query for DNAME below": {"w.example.", mdns.TypeDNAME, []string{dname, "w.test. 60 IN DNAME org."},
			[]string{dname, "w.example. 60 IN CNAME w.test.", "w.test. 60 IN DNAME org."}, 0},
		"query for DNAME of its owner": {"example.", mdns.TypeDNAME, []string{dname}, []string{dname}, 0},
		"query for its owner":          {"example.", mdns.TypeA, []string{dname, "example. 60 IN A 192.0.2.1"}, []string{"example. 60 IN A 192.0.2.1"}, 0},
		"a target that is too long": {"wwwwwwwwwwwwwwww.example.", mdns.TypeA, []string{"example. 60 IN DNAME " + long},
			[]string{"example. 60 IN DNAME " + long}, wire.YXDomain},
		"a loop":          {"w.example.", mdns.TypeA, []string{dname, "test. 60 IN DNAME example."}, nil, wire.ServFail},
		"growth":          {"w.example.", mdns.TypeA, []string{"example. 60 IN DNAME x.example."}, nil, wire.ServFail},
		"an earlier name": {"w.example.", mdns.TypeA, []string{dname, "w.test. 60 IN CNAME w.example."}, nil, wire.ServFail},
	}
	for name, c := range cases {
		packet, question := packReply(t, c.name, c.qtype, append(c.records, "--", ". 60 IN SOA ns. host. 1 2 3 4 5")...)
		r, why := new(parser).parse(packet, question, false)
		if why != valid {
			t.Errorf("%s: got %q, want a valid reply", name, why)
			continue
		}
		checkReply(t, r, question)
		var m mdns.Msg
		if err := m.Unpack(replyMessage(r, question)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got, want []string
		for _, r := range m.Answer {
			got = append(got, r.String())
		}
		for _, r := range c.want {
			want = append(want, rr(r).String())
		}
		if r.code != c.code || !slices.Equal(got, want) {
			t.Errorf("%s: got %v and\n%s\nwant %v and\n%s", name, r.code, strings.Join(got, "\n"), c.code, strings.Join(want, "\n"))
		}
	}
}

// A chain whose end an upstream lacks is finished by this server, and a client that does not request
// recursion gets it as it is.
func TestUnfinishedChainFollowed(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		name, m := q.Question[0].Name, answerOf(q, "1")
		first, _, _ := strings.Cut(name, ".")
		m.Answer, m.Authoritative, m.RecursionAvailable = nil, true, false
		switch first {
		case "good":
			answerWithAddress("1")(q, tcp, send)
			return
		case "gone":
			m.Rcode, m.RecursionAvailable = mdns.RcodeNameError, true
		default: // n3 leads to n2, n1, good; a to b and back
			next := map[string]string{"n3": "n2", "n2": "n1", "n1": "good", "a": "b", "b": "a", "lost": "gone"}[first]
			m.Answer = []mdns.RR{rr(name + " 60 IN CNAME " + next + ".example.")}
		}
		send(pack(m))
	})
	r := newHarness(t, "forward . "+up.addr)
	r.sendOnce()
	for name, want := range map[string]string{
		"n3.example.":   "NOERROR: n3.example.CNAME n2.example.CNAME n1.example.CNAME good.example.A",
		"lost.example.": "NXDOMAIN: lost.example.CNAME",
		"a.example.":    "SERVFAIL: a.example.CNAME b.example.CNAME",
	} {
		m, _ := r.ask(query(name, mdns.TypeA), dns.UDP)
		got := mdns.RcodeToString[m.Rcode] + ":"
		for _, a := range m.Answer {
			got += fmt.Sprintf(" %s%s", a.Header().Name, mdns.TypeToString[a.Header().Rrtype])
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}

	q := query("n3.example.", mdns.TypeA)
	q.RecursionDesired = false
	before := up.queryCount()
	if m, err := r.ask(q, dns.UDP); err != nil || len(m.Answer) != 1 || up.queryCount() != before+1 {
		t.Errorf("without RD: got %v, %d queries and\n%v\nwant the CNAME record alone, after one query", err, up.queryCount()-before, m)
	}
}

// glibc takes a reply without records, AA and RA for a failure: a client gets NODATA of a resolver.
func TestEmptyReplyHasRA(t *testing.T) {
	r := newHarness(t, "forward . "+newFakeUpstream(t, nothing(false, false)).addr)
	for _, recursion := range []bool{true, false} {
		q := query("a.example.", mdns.TypeA)
		q.RecursionDesired = recursion
		if m, err := r.ask(q, dns.UDP); err != nil || m.Rcode != mdns.RcodeSuccess || m.RecursionAvailable != recursion {
			t.Errorf("RD %v: got %v and\n%v\nwant NOERROR with RA as RD", recursion, err, m)
		}
	}
}
