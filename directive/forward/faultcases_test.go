package forward

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// sent returns what the upstream has received, in order: tcp or udp, with or without EDNS.
func (f *fakeUpstream) sent() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, m := range f.queries {
		how := f.protos[i]
		if m.IsEdns0() != nil {
			how += "+edns"
		}
		all = append(all, how)
	}
	return all
}

// changed sends a changed answer.
func changed(change func(m *mdns.Msg)) behavior {
	return func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := answerOf(q, "1")
		change(m)
		send(pack(m))
	}
}

// overUDP has the behavior over UDP alone; over TCP the answer is good.
func overUDP(do behavior) behavior {
	return func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if tcp {
			answerWithAddress("1")(q, tcp, send)
			return
		}
		do(q, tcp, send)
	}
}

// toEDNS has the behavior for queries with EDNS; the answer to others is good.
func toEDNS(do behavior) behavior {
	return func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if q.IsEdns0() == nil {
			answerWithAddress("1")(q, tcp, send)
			return
		}
		do(q, tcp, send)
	}
}

// rcode answers with a code, without an OPT record unless the code needs one.
func rcode(code int) behavior {
	return changed(func(m *mdns.Msg) {
		m.Answer, m.Extra = nil, nil
		if m.Rcode = code; code > 15 {
			m.SetEdns0(1232, false)
		}
	})
}

// errorWithOPT answers with a code, as a server that knows EDNS.
func errorWithOPT(code int) behavior {
	return changed(func(m *mdns.Msg) { m.Answer, m.Rcode = nil, code })
}

// header answers with the header alone.
func header(code int) behavior {
	return changed(func(m *mdns.Msg) { m.Question, m.Answer, m.Extra, m.Rcode = nil, nil, nil, code })
}

// sentBack sends the query back with a code.
func sentBack(code int) behavior {
	return func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := q.Copy()
		m.Response, m.Rcode = true, code
		send(pack(m))
	}
}

// raw sends the packed answer after a change of its bytes.
func raw(change func(b []byte) []byte) behavior {
	return func(q *mdns.Msg, _ bool, send func([]byte)) { send(change(pack(answerOf(q, "1")))) }
}

// records sends these records in place of the answer, in the text of which NAME is the name.
func records(all ...string) behavior {
	return func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := answerOf(q, "1")
		m.Answer = nil
		for _, r := range all {
			m.Answer = append(m.Answer, rr(strings.ReplaceAll(r, "NAME", q.Question[0].Name)))
		}
		send(pack(m))
	}
}

// lame refers to the root servers.
func lame() behavior {
	return changed(func(m *mdns.Msg) {
		m.Answer, m.RecursionAvailable = nil, false
		m.Ns = []mdns.RR{rr(". 60 IN NS a.root-servers.net.")}
	})
}

// nothing answers NOERROR without records.
func nothing(aa, ra bool) behavior {
	return changed(func(m *mdns.Msg) { m.Answer, m.Authoritative, m.RecursionAvailable = nil, aa, ra })
}

// toOther answers with a CNAME record to other.test, and with these authority records; for that name
// the answer is good.
func toOther(ra bool, authority ...string) behavior {
	return changed(func(m *mdns.Msg) {
		if m.Question[0].Name == "other.test." {
			return
		}
		m.Answer, m.Authoritative, m.RecursionAvailable = []mdns.RR{rr(m.Question[0].Name + " 60 IN CNAME other.test.")}, true, ra
		for _, r := range authority {
			m.Ns = append(m.Ns, rr(r))
		}
	})
}

var (
	cut      = raw(func(b []byte) []byte { return b[:len(b)-14] })
	counts   = raw(func(b []byte) []byte { b[7] = 9; return b })
	tc       = changed(func(m *mdns.Msg) { m.Truncated = true })
	others   = records("bank.example. 9 IN A 192.0.2.66")
	notReply = raw(func(b []byte) []byte { b[2] &^= 1 << 7; return b })
	opcode   = raw(func(b []byte) []byte { b[2] |= mdns.OpcodeUpdate << 3; return b })
	twoOPT   = changed(func(m *mdns.Msg) { m.Extra = append(m.Extra, m.Extra...) })
	movedOPT = changed(func(m *mdns.Msg) { m.Answer, m.Extra = append(m.Answer, m.Extra...), nil })
)

// Each fault of a reply leads to the next step at once: no query waits for a time limit.
func TestNextStepAfterFault(t *testing.T) {
	const good, edns, plain, tcp = "192.0.2.1", "udp+edns", "udp", "tcp+edns"
	const finished = "other.test. " + good
	for name, c := range map[string]struct {
		fault fault
		do    behavior
		knows bool // EDNS has worked before
		want  string
		sent  []string
		next  string // the answer with a second upstream, if it is another one
	}{
		"FORMERR":                        {failsWithEDNS, toEDNS(rcode(1)), true, good, []string{edns, plain}, ""},
		"NOTIMP":                         {failsWithEDNS, toEDNS(rcode(4)), true, good, []string{edns, plain}, ""},
		"BADVERS":                        {failsWithEDNS, toEDNS(rcode(16)), true, good, []string{edns, plain}, ""},
		"FORMERR, the header alone":      {failsWithEDNS, toEDNS(header(1)), true, good, []string{edns, plain}, ""},
		"FORMERR, the query sent back":   {failsWithEDNS, toEDNS(sentBack(1)), true, good, []string{edns, plain}, ""},
		"NOTIMP, the query sent back":    {failsWithEDNS, toEDNS(sentBack(4)), false, good, []string{edns, plain}, ""},
		"REFUSED, the query sent back":   {failsWithEDNS, toEDNS(sentBack(5)), false, good, []string{edns, plain}, ""},
		"no response":                    {malformed, overUDP(notReply), true, good, []string{edns, tcp}, ""},
		"no response on TCP":             {malformed, notReply, true, "SERVFAIL", []string{edns, tcp}, "192.0.2.2"},
		"another opcode":                 {malformed, overUDP(opcode), true, good, []string{edns, tcp}, ""},
		"SERVFAIL":                       {failsWithEDNS, toEDNS(rcode(2)), false, good, []string{edns, plain}, ""},
		"REFUSED":                        {failsWithEDNS, toEDNS(rcode(5)), false, good, []string{edns, plain}, ""},
		"SERVFAIL, the header alone":     {failsWithEDNS, toEDNS(header(2)), false, good, []string{edns, plain}, ""},
		"SERVFAIL, with and without":     {failsWithEDNS, rcode(2), false, "SERVFAIL", []string{edns, plain}, ""},
		"SERVFAIL where EDNS has worked": {failsWithEDNS, toEDNS(rcode(2)), true, good, []string{edns, plain}, ""},
		"REFUSED where EDNS has worked":  {failsWithEDNS, toEDNS(rcode(5)), true, good, []string{edns, plain}, ""},
		"REFUSED, with and without":      {failsWithEDNS, rcode(5), true, "REFUSED", []string{edns, plain}, ""},
		"SERVFAIL with OPT":              {valid, errorWithOPT(2), true, "SERVFAIL", []string{edns}, ""},
		"REFUSED with OPT":               {valid, errorWithOPT(5), true, "REFUSED", []string{edns}, ""},
		"TC":                             {truncated, overUDP(tc), true, good, []string{edns, tcp}, ""},
		"TC, the header alone": {truncated, overUDP(changed(func(m *mdns.Msg) {
			m.Question, m.Answer, m.Extra, m.Truncated = nil, nil, nil, true
		})), true, good, []string{edns, tcp}, ""},
		"TC over TCP":           {stillCut, tc, true, good, []string{edns, tcp}, "192.0.2.2"},
		"cut":                   {malformed, overUDP(cut), true, good, []string{edns, tcp}, ""},
		"cut in the question":   {malformed, overUDP(raw(func(b []byte) []byte { return b[:20] })), true, good, []string{edns, tcp}, ""},
		"cut behind the header": {malformed, overUDP(raw(func(b []byte) []byte { return b[:12] })), true, good, []string{edns, tcp}, ""},
		"cut on TCP":            {malformed, cut, true, "SERVFAIL", []string{edns, tcp}, "192.0.2.2"},
		"count too high":        {malformed, overUDP(counts), true, good, []string{edns, tcp}, ""},
		"count too high on TCP": {malformed, counts, true, "SERVFAIL", []string{edns, tcp}, "192.0.2.2"},
		"others' records":       {unrelated, others, true, "SERVFAIL", []string{edns, tcp}, "192.0.2.2"},
		"others' over UDP":      {unrelated, overUDP(others), true, good, []string{edns, tcp}, ""},
		"two OPT":               {valid, twoOPT, true, good, []string{edns}, ""},
		"OPT among the answers": {valid, movedOPT, true, good, []string{edns}, ""},
		"OPT with an owner":     {valid, changed(func(m *mdns.Msg) { m.Extra[0].Header().Name = "a." }), true, good, []string{edns}, ""},
		"SERVFAIL header":       {noQuestion, header(2), true, "SERVFAIL", []string{edns, plain}, "192.0.2.2"},
		"REFUSED header":        {noQuestion, header(5), true, "REFUSED", []string{edns, plain}, "192.0.2.2"},
		"NOERROR header":        {noQuestion, header(0), true, "SERVFAIL", []string{edns, plain}, "192.0.2.2"},
		"SERVFAIL header, OPT": {noQuestion, changed(func(m *mdns.Msg) { m.Question, m.Answer, m.Rcode = nil, nil, 2 }), true,
			"SERVFAIL", []string{edns}, "192.0.2.2"},
		"lame": {referral, lame(), true, "SERVFAIL", []string{edns}, "192.0.2.2"},
		"lame, RA": {resolverReferral, changed(func(m *mdns.Msg) { m.Answer, m.Ns = nil, []mdns.RR{rr("example. 60 IN NS ns.example.")} }), true,
			"NOERROR", []string{edns}, "192.0.2.2"},
		"nothing, of neither a resolver nor the zone": {empty, nothing(false, false), true, "NOERROR", []string{edns}, "192.0.2.2"},
		"nothing, AA":                   {valid, nothing(true, false), true, "NOERROR", []string{edns}, ""},
		"nothing, RA":                   {valid, nothing(false, true), true, "NOERROR", []string{edns}, ""},
		"CNAME alone":                   {unfinished, toOther(false), true, finished, []string{edns, edns}, ""},
		"CNAME and a referral":          {unfinished, toOther(false, ". 60 IN NS ns.test."), true, finished, []string{edns, edns}, ""},
		"CNAME and a referral, RA":      {unfinished, toOther(true, "test. 60 IN NS ns.test."), true, finished, []string{edns, edns}, ""},
		"CNAME and the SOA of its zone": {unfinished, toOther(false, "example. 60 IN SOA ns. host. 1 2 3 4 5"), true, finished, []string{edns, edns}, ""},
		"CNAME and NODATA":              {valid, toOther(false, "test. 60 IN SOA ns. host. 1 2 3 4 5"), true, "other.test.", []string{edns}, ""},
		"CNAME alone, RA":               {valid, toOther(true), true, "other.test.", []string{edns}, ""},
		"BADCOOKIE":                     {badCookie, overUDP(rcode(23)), true, good, []string{edns, tcp}, ""},
		"BADCOOKIE over TCP":            {badCookie, rcode(23), true, "SERVFAIL", []string{edns, tcp}, "192.0.2.2"},
		"failover":                      {failoverCode, rcode(3), true, "NXDOMAIN", []string{edns}, "192.0.2.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, second := range []bool{false, true} {
				up := newFakeUpstream(t, answerWithAddress("1"))
				to, want := up.addr, c.want
				if second {
					to += " " + newFakeUpstream(t, answerWithAddress("2")).addr
					if c.next != "" {
						want = c.next
					}
				}
				r := newHarness(t, "forward . "+to+" {\n policy sequential\n read_timeout 1m\n max_fails 0\n failover NXDOMAIN\n}")
				r.sendOnce()
				before := 0
				if c.knows {
					r.wantAnswer("known.example.", mdns.TypeA, good)
					before = 1
				}
				up.setBehavior(c.do)

				q := query("a.example.", mdns.TypeA)
				q.SetEdns0(1232, false)
				m, _ := r.ask(q, dns.UDP)
				if got := brief(m); got != want {
					t.Errorf("second upstream %v: got %s, want %s", second, got, want)
				}
				if c.fault == unfinished && len(m.Ns) > 0 {
					t.Errorf("second upstream %v: got the authority records %v, want none of the referral", second, m.Ns)
				}
				if got := up.sent()[before:]; !slices.Equal(got, c.sent) {
					t.Errorf("second upstream %v: got the queries %v, want %v", second, got, c.sent)
				}
				codeIsReason := c.fault == failoverCode || c.fault == failsWithEDNS || c.fault == truncated
				if len(nextSteps[c.fault]) > 1 && m.Rcode != mdns.RcodeSuccess && !codeIsReason && len(m.IsEdns0().Option) == 0 {
					t.Errorf("second upstream %v: got %v, want an extended error", second, m)
				}
			}
		})
	}
}

// A referral is the answer to a client that does not request recursion.
func TestReferralWithoutRecursion(t *testing.T) {
	up := newFakeUpstream(t, lame())
	r := newHarness(t, "forward . "+up.addr)
	q := query("a.example.", mdns.TypeA)
	q.RecursionDesired = false
	if m, err := r.ask(q, dns.UDP); err != nil || m.Rcode != mdns.RcodeSuccess || len(m.Ns) != 1 {
		t.Errorf("got %v and\n%v\nwant the referral", err, m)
	}
}

// The failure of one name does not switch EDNS off for others, and a query with DO always has it.
func TestEDNSOffForOneNameOnly(t *testing.T) {
	for name, do := range map[string]behavior{
		"FORMERR": rcode(1), "NOTIMP": rcode(4), "BADVERS": rcode(16), "FORMERR header": header(1),
	} {
		t.Run(name, func(t *testing.T) {
			up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
				if strings.HasPrefix(q.Question[0].Name, "old") {
					toEDNS(do)(q, tcp, send)
					return
				}
				answerWithAddress("1")(q, tcp, send)
			})
			r := newHarness(t, "forward . "+up.addr)
			r.sendOnce()
			for _, n := range []string{"a.example.", "old.example.", "b.example."} {
				r.wantAnswer(n, mdns.TypeA, "192.0.2.1")
			}
			signed := query("old2.example.", mdns.TypeA)
			signed.SetEdns0(1232, true)
			m, _ := r.ask(signed, dns.UDP)
			if m.Rcode == mdns.RcodeSuccess {
				t.Errorf("with DO: got %v, want the error", m)
			}
			if got, want := fmt.Sprint(up.sent()), "[udp+edns udp+edns udp udp+edns udp+edns]"; got != want {
				t.Errorf("got the queries %s, want %s", got, want)
			}
		})
	}
}

// Where EDNS has never worked, its failure is remembered, except for queries with DO.
func TestUpstreamNeverAnsweringEDNS(t *testing.T) {
	for name, do := range map[string]behavior{
		"FORMERR": rcode(1), "BADVERS": rcode(16), "SERVFAIL": rcode(2), "REFUSED": rcode(5), "header": header(5), "silence": noReply,
		"FORMERR, sent back": sentBack(1), "SERVFAIL, sent back": sentBack(2),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newFakeUpstream(t, toEDNS(do))
			r := newHarness(t, "forward . "+up.addr)
			for i := range 5 {
				r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1")
			}
			if got, want := fmt.Sprint(overUDPAlone(up.sent())), "[udp+edns udp udp udp udp udp]"; got != want {
				t.Errorf("got the queries %s, want %s", got, want)
			}

			up.setBehavior(answerWithAddress("1")) // EDNS works from now on
			signed := query("signed.example.", mdns.TypeA)
			signed.SetEdns0(1232, true)
			if m, _ := r.ask(signed, dns.UDP); brief(m) != "192.0.2.1" {
				t.Errorf("with DO: got %v, want an answer", m)
			}
			r.wantAnswer("last.example.", mdns.TypeA, "192.0.2.1")
			if got := overUDPAlone(up.sent()); got[len(got)-2] != "udp+edns" || got[len(got)-1] != "udp+edns" {
				t.Errorf("after a reply with EDNS: got the queries %v, want EDNS in the last two", got)
			}
		})
	}
}

// A firewall drops EDNS over UDP alone: replies over TCP with EDNS, which arrive at the same time, do not
// hide that, and UDP is used.
func TestEDNSDroppedOverUDPAlone(t *testing.T) {
	up := newFakeUpstream(t, overUDP(toEDNS(noReply)))
	r := newHarness(t, "forward . "+up.addr)
	u := r.forward[0].set.current.Load().all[0]
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
	chaintest.Eventually(t, "EDNS is avoided, and UDP is not", func() bool {
		return u.edns.fails.active() && !u.udp.silent.isKnown()
	})

	before := up.queryCount()
	r.sendOnce()
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
	if got, want := fmt.Sprint(overUDPAlone(up.sent()[before:])), "[udp]"; got != want { // one over TCP may come late
		t.Errorf("got the queries %s, want %s", got, want)
	}
}

// Two upstreams behind a firewall that drops EDNS, and a name whose queries with EDNS are dropped
// by one that answers others.
func TestDroppedEDNSAskedWithout(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	first, second := newFakeUpstream(t, toEDNS(noReply)), newFakeUpstream(t, toEDNS(noReply))
	r := newHarness(t, "forward . "+first.addr+" "+second.addr)
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")

	up := newFakeUpstream(t, answerWithAddress("1"))
	r = newHarness(t, "forward . "+up.addr)
	r.wantAnswer("known.example.", mdns.TypeA, "192.0.2.1")
	up.setBehavior(toEDNS(noReply))
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
	up.setBehavior(answerWithAddress("1"))
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
	if got := overUDPAlone(up.sent()); got[len(got)-1] != "udp+edns" { // one over TCP may come late
		t.Errorf("got the queries %v, want EDNS in the last one", got)
	}
}

// A reply that cannot be used does not keep another upstream, which is silent to EDNS, from being asked
// without it.
func TestDroppedEDNSBesideFaultyReply(t *testing.T) {
	for name, faulty := range map[string]behavior{
		"REFUSED header": header(5), "SERVFAIL header": header(2), "lame": lame(), "NXDOMAIN, failover": rcode(3),
		"malformed": cut, "nothing": nothing(false, false),
	} {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, EDNS has worked %v", name, known), func(t *testing.T) {
				t.Parallel()
				first, second := newFakeUpstream(t, answerWithAddress("1")), newFakeUpstream(t, answerWithAddress("2"))
				r := newHarness(t, "forward . "+first.addr+" "+second.addr+" {\n policy sequential\n max_fails 0\n failover NXDOMAIN\n}")
				if known {
					for _, u := range r.forward[0].set.current.Load().all {
						u.edns.works.Store(true)
					}
				}
				first.setBehavior(faulty)
				second.setBehavior(toEDNS(noReply))
				r.repeatSoon()
				r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
			})
		}
	}
}

// An extended code leaves no trace in the reply to a client without EDNS.
func TestExtendedCodeWithoutEDNS(t *testing.T) {
	for code, want := range map[int]string{16: "SERVFAIL", 18: "SERVFAIL", 23: "SERVFAIL"} {
		up := newFakeUpstream(t, changed(func(m *mdns.Msg) {
			m.Answer, m.Rcode = nil, code
			m.SetEdns0(1232, false)
		}))
		r := newHarness(t, "forward . "+up.addr)
		r.sendOnce()
		r.wantAnswer("a.example.", mdns.TypeA, want)
	}
}

// The page has a row with the steps of each fault.
func TestFaultTableDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/directives/forward.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[fault]string{
		failsWithEDNS: "an error that may be due to EDNS", truncated: "TC, or larger than requested",
		stillCut: "TC over a connection", malformed: "malformed", unrelated: "only records of other names",
		wrongCase: "another letter case", badCookie: "BADCOOKIE", wrongQuestion: "another question or ID, over a connection",
		noQuestion: "no question", referral: "a referral", resolverReferral: "a referral of a server that offers recursion", failoverCode: "a code of `failover`",
		empty: "nothing, of a server without recursion and the zone", unfinished: "a CNAME chain without its end",
	}
	steps := map[step]string{
		accept: "use it", askTarget: "ask for its target", withoutEDNS: "ask without EDNS", overTCP: "ask over TCP", nextUpstream: "next upstream", fail: "SERVFAIL",
	}
	for f, all := range nextSteps {
		var text []string
		for _, s := range all {
			text = append(text, steps[s])
		}
		if row := "| " + rows[f] + " | " + strings.Join(text, "; ") + " |"; f != valid && !strings.Contains(string(page), row) {
			t.Errorf("the page has no row that begins with %q", row)
		}
	}
}

// The upper bits of the response code are read from an OPT record in any section.
func TestOPTInAnySection(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		b := pack(new(mdns.Msg).SetReply(q))
		b[3] |= 6 // the lower bits of BADTRUNC
		binary.BigEndian.PutUint16(b[8:], 1)
		send(append(b, 0, 0, 41, 4, 208, 1, 0, 0, 0, 0, 0))
	})
	r := newHarness(t, "forward . "+up.addr)
	q := query("a.example.", mdns.TypeA)
	q.SetEdns0(1232, false)
	if m, _ := r.ask(q, dns.UDP); m.Rcode != 22 {
		t.Errorf("got %v, want BADTRUNC", m)
	}
}

// A record whose data does not have the form of its type is neither passed on nor kept in part;
// behind the answers it is dropped.
func TestMalformedDataNotPassedOn(t *testing.T) {
	for name, c := range map[string]struct {
		qtype uint16
		data  string // in hexadecimal form
	}{
		"TXT without a string":     {mdns.TypeTXT, ""},
		"TXT longer than the data": {mdns.TypeTXT, "05616263"},
		"HTTPS keys out of order":  {mdns.TypeHTTPS, "00010000030002208b000100030268 32"},
		"SVCB without a target":    {mdns.TypeSVCB, "0001"},
		"CAA without a tag":        {mdns.TypeCAA, "0000"},
		"AAAA of four bytes":       {mdns.TypeAAAA, "c0000201"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record := func(owner string) mdns.RR {
				h := mdns.RR_Header{Name: owner, Rrtype: c.qtype, Class: mdns.ClassINET, Ttl: 60}
				return &mdns.RFC3597{Hdr: h, Rdata: strings.ReplaceAll(c.data, " ", "")}
			}
			up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
				m := answerOf(q, "1")
				m.Answer = nil
				if m.Answer = []mdns.RR{record(q.Question[0].Name)}; q.Question[0].Qtype == mdns.TypeMX {
					m.Answer = []mdns.RR{rr(q.Question[0].Name + " 60 IN MX 1 mail.example.")}
					m.Extra = append(m.Extra, record("mail.example."))
				}
				send(pack(m))
			})
			r := newHarness(t, "forward . "+up.addr)
			r.sendOnce()
			if m, err := r.ask(query("a.example.", c.qtype), dns.UDP); err == nil || m.Rcode != mdns.RcodeServerFailure || len(m.Answer) > 0 {
				t.Errorf("got error %v and\n%v\nwant SERVFAIL", err, m)
			}
			if got, want := fmt.Sprint(up.sent()), "[udp+edns tcp+edns]"; got != want {
				t.Errorf("got the queries %s, want %s", got, want)
			}
			if m, err := r.ask(query("b.example.", mdns.TypeMX), dns.UDP); err != nil || len(m.Answer) != 1 || len(m.Extra) != 0 {
				t.Errorf("behind the answers: got error %v and\n%v\nwant the MX record alone", err, m)
			}
		})
	}
}

// A malformed record that is not used for the answer is dropped, whatever its type.
func TestMalformedRecordsNotUsedDropped(t *testing.T) {
	unknown := func(owner string, rrtype, class uint16, data string) mdns.RR {
		return &mdns.RFC3597{Hdr: mdns.RR_Header{Name: owner, Rrtype: rrtype, Class: class, Ttl: 60}, Rdata: data}
	}
	for name, c := range map[string]struct {
		section func(m *mdns.Msg) *[]mdns.RR
		record  mdns.RR
	}{
		"SOA of two bytes":       {authority, unknown("example.", mdns.TypeSOA, 1, "0000")},
		"NS without a name":      {authority, unknown("example.", mdns.TypeNS, 1, "")},
		"NS cut":                 {authority, unknown("example.", mdns.TypeNS, 1, "0361")},
		"SRV of two bytes":       {additional, unknown("a.example.", mdns.TypeSRV, 1, "0001")},
		"AAAA of four bytes":     {additional, unknown("a.example.", mdns.TypeAAAA, 1, "01020304")},
		"TXT of another name":    {answers, unknown("b.example.", mdns.TypeTXT, 1, "0561")},
		"CNAME of another name":  {answers, unknown("b.example.", mdns.TypeCNAME, 1, "0561")},
		"A of another name":      {answers, unknown("b.example.", mdns.TypeA, 1, "c000")},
		"another type":           {answers, unknown("a.example.", mdns.TypeTXT, 1, "0561")},
		"another class":          {answers, unknown("a.example.", mdns.TypeTXT, 3, "0561")},
		"signature without DO":   {answers, unknown("a.example.", mdns.TypeRRSIG, 1, "00")},
		"DNAME of another name":  {answers, unknown("b.example.", mdns.TypeDNAME, 1, "")},
		"signature of authority": {authority, unknown("example.", mdns.TypeRRSIG, 1, "00")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newFakeUpstream(t, changed(func(m *mdns.Msg) {
				to := c.section(m)
				*to = slices.Insert(*to, 0, c.record)
			}))
			r := newHarness(t, "forward . "+up.addr)
			r.sendOnce()
			r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
			if n := up.queryCount(); n != 1 {
				t.Errorf("got %d queries, want 1", n)
			}
		})
	}
}

func answers(m *mdns.Msg) *[]mdns.RR    { return &m.Answer }
func authority(m *mdns.Msg) *[]mdns.RR  { return &m.Ns }
func additional(m *mdns.Msg) *[]mdns.RR { return &m.Extra }

// A malformed record of the chain is a fault, whatever its type.
func TestMalformedRecordOfChain(t *testing.T) {
	for name, record := range map[string]*mdns.RFC3597{
		"CNAME":           {Hdr: mdns.RR_Header{Name: "a.example.", Rrtype: mdns.TypeCNAME, Class: 1}, Rdata: "0561"},
		"DNAME":           {Hdr: mdns.RR_Header{Name: "example.", Rrtype: mdns.TypeDNAME, Class: 1}, Rdata: "0561"},
		"A of the target": {Hdr: mdns.RR_Header{Name: "b.example.", Rrtype: mdns.TypeA, Class: 1}, Rdata: "c000"},
	} {
		t.Run(name, func(t *testing.T) {
			up := newFakeUpstream(t, changed(func(m *mdns.Msg) {
				m.Answer = []mdns.RR{record, rr("a.example. 60 IN CNAME b.example."), rr("b.example. 60 IN A 192.0.2.1")}
			}))
			r := newHarness(t, "forward . "+up.addr)
			r.sendOnce()
			r.wantAnswer("a.example.", mdns.TypeA, "SERVFAIL")
		})
	}
}

// An option that the client has not sent does not reach it, except for an extended error.
// See CVE-2026-4893 in docs/reference/advisories.md.
func TestUnaskedOptionsNotPassedOn(t *testing.T) {
	subnet := &mdns.EDNS0_SUBNET{Code: mdns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, SourceScope: 24, Address: []byte{192, 0, 2, 0}}
	local := &mdns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")}
	up := newFakeUpstream(t, changed(func(m *mdns.Msg) {
		o := m.IsEdns0()
		o.Option = append(o.Option, subnet, local, &mdns.EDNS0_EXPIRE{Code: mdns.EDNS0EXPIRE, Expire: 1}, &mdns.EDNS0_EDE{InfoCode: 3})
	}))
	r := newHarness(t, "forward . "+up.addr)
	for _, c := range []struct {
		sent []mdns.EDNS0
		want []uint16
	}{
		{nil, []uint16{mdns.EDNS0EDE}},
		{[]mdns.EDNS0{subnet}, []uint16{mdns.EDNS0SUBNET, mdns.EDNS0EDE}},
		{[]mdns.EDNS0{local}, []uint16{65001, mdns.EDNS0EDE}},
	} {
		q := query("a.example.", mdns.TypeA)
		q.SetEdns0(1232, false)
		q.IsEdns0().Option = c.sent
		m, _ := r.ask(q, dns.UDP)
		var got []uint16
		for _, o := range m.IsEdns0().Option {
			got = append(got, o.Option())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("client sends %v: got the options %v, want %v", c.sent, got, c.want)
		}
	}
}
