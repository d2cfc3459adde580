package dnstest

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

const good = `Shows that scripts are read.

only: folder
replies: differ

-- Corefile --
.:53 {
	whoami
}
-- cluster.yaml --
kind: Service
metadata: {name: a, namespace: b}
-- queries --
# A comment.
? a.b A +norec
NOERROR aa

? a.b SRV CH +edns=4096 +do +tcp
silence
-- delete 2 --
kind: Service
metadata: {name: a, namespace: b}
-- queries 2 --
? A.b NS
NXDOMAIN aa edns=1232
A.b.  5 IN CNAME	c.b.
;authority
b. 5 IN SOA ns.b. host.b. * 1 2 3 4
;additional
...
`

func TestParseScript(t *testing.T) {
	s, err := parseScript("x.txt", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if s.only != "folder" || !s.differ || len(s.steps) != 2 || len(s.steps[0].cases) != 2 {
		t.Fatalf("got %+v, want two steps, the first with two queries", s)
	}
	first, second, third := s.steps[0].cases[0], s.steps[0].cases[1], s.steps[1].cases[0]
	if first.at != "x.txt:15" || third.at != "x.txt:24" {
		t.Errorf("queries: got the positions %s and %s, want x.txt:15 and x.txt:24", first.at, third.at)
	}
	if got := hex.EncodeToString(first.packet); got != "0000000000010000000000000161016200"+"00010001" {
		t.Errorf("first query: got packet %s, want the question a. A IN with RD", got)
	}
	var m dns.Msg
	if err := m.Unpack(second.packet); err != nil {
		t.Fatal(err)
	}
	opt := m.IsEdns0()
	if second.only != "tcp" || !second.want.silence || second.sizes != 4096 || opt == nil || !opt.Do() ||
		m.Question[0].Qclass != dns.ClassCHAOS || !m.RecursionDesired {
		t.Errorf("second query: got %+v\n%v\nwant CH over TCP with DO, a size of 4096 and silence", second, &m)
	}
	want := "NXDOMAIN aa edns=1232\nA.b. 5 IN CNAME c.b.\n;authority\nb. 5 IN SOA ns.b. host.b. * 1 2 3 4\n;additional\n...\n"
	if got := third.want.String(); got != want {
		t.Errorf("third query: got the expectation\n%s\nwant\n%s", got, want)
	}
	if docs, err := objects(s.steps[1].delete); err != nil || len(docs) != 1 || docs[0].Namespace != "b" {
		t.Errorf("objects to delete: got %v, error %v, want one in namespace b", docs, err)
	}
}

func TestParseScriptErrors(t *testing.T) {
	for old, test := range map[string]struct{ new, want string }{
		"replies: differ":   {"replies: same", `x.txt:4: replies: want differ, got "same"`},
		"-- Corefile --":    {"-- corefile --", `x.txt:6: unknown part "corefile"`},
		"queries 2 --":      {"queries 4 --", `x.txt:23: part "queries 4": steps are numbered from 1 without gaps`},
		"? a.b A":           {"? a.b AA", `x.txt:15: unknown type "AA"`},
		"+norec":            {"+rec", `x.txt:15: unknown word "+rec"`},
		"NOERROR aa\n":      {"", "x.txt:15: want an expected reply after the query"},
		"silence":           {"silence\nsilence", `x.txt:20: want no line after silence, got "silence"`},
		"# A comment":       {"NOERROR", `x.txt:14: want a query, got "NOERROR."`},
		"IN CNAME	c.b.":     {"IN CNAM c.b.", `x.txt:26: not a record: "A.b.  5 IN CNAM c.b."`},
		"A.b.  5 IN":        {"A.b. IN", `x.txt:26: want a record with name, TTL, class and type`},
		"A.b.  5 IN CNAME":  {"; A.b.", `x.txt:26: not a record: "; A.b.\tc.b.": it is empty or a comment`},
		"? a.b A +norec":    {"? hex 00", `x.txt:15: want a packet with an ID, got 1 bytes`},
		"-- queries 2 --\n": {"", "x.txt: no queries in step 2"},
	} {
		_, err := parseScript("x.txt", []byte(strings.Replace(good, old, test.new, 1)))
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s for %s: got %v, want %s", test.new, old, err, test.want)
		}
	}
}

func TestSameRecords(t *testing.T) {
	const c1, c2 = "a. 5 IN CNAME b.", "b. 5 IN CNAME c."
	const a1, a2 = "c. 5 IN A 10.0.0.1", "c. 5 IN A 10.0.0.2"
	for _, test := range []struct {
		want, got []string
		more, ok  bool
	}{
		{[]string{a1, a2}, []string{a2, a1}, false, true},
		{[]string{a1}, []string{a1, a2}, false, false},
		{[]string{a1}, []string{a1, a1}, false, false},
		{[]string{a1}, []string{a2, a1}, true, true},
		{[]string{c1, c2, a1}, []string{c1, c2, a1}, false, true},
		{[]string{c1, c2, a1}, []string{c2, c1, a1}, false, false},
		{[]string{c1, a1}, []string{a1, c1}, false, false},
		{[]string{"c. * IN A *", a1}, []string{a1, a2}, false, true},
		{[]string{"c. * IN A *"}, []string{"d. 5 IN A 10.0.0.1"}, false, false},
		{[]string{"C. 5 IN A 10.0.0.1"}, []string{a1}, false, false},
		{nil, nil, true, true},
	} {
		if got := sameRecords(test.want, test.got, test.more, true); got != test.ok {
			t.Errorf("want %q, got %q: %v", test.want, test.got, got)
		}
	}
}

func TestCheck(t *testing.T) {
	parse := func(text string) *queryCase {
		cases, err := parseQueries("x.txt", text, 1)
		if err != nil {
			t.Fatal(err)
		}
		return cases[0]
	}
	q := parse("? a.b A +edns=512\nNOERROR aa edns=1232\na.b. 5 IN A 10.0.0.1\n")
	reply := func(change func(*dns.Msg)) []byte {
		var asked dns.Msg
		if err := asked.Unpack(q.packet); err != nil {
			t.Fatal(err)
		}
		m := new(dns.Msg).SetReply(&asked)
		m.Authoritative = true
		m.SetEdns0(1232, false)
		rr, err := dns.NewRR("a.b. 5 IN A 10.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = []dns.RR{rr}
		change(m)
		packed, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	for want, change := range map[string]func(*dns.Msg){
		"":                              func(*dns.Msg) {},
		"no qr":                         func(m *dns.Msg) { m.Response = false },
		"rd or opcode":                  func(m *dns.Msg) { m.RecursionDesired = false },
		"wrong: the header":             func(m *dns.Msg) { m.Authoritative = false },
		"the question differs":          func(m *dns.Msg) { m.Question[0].Name = "A.b." },
		"wrong: the answer section":     func(m *dns.Msg) { m.Answer = nil },
		"wrong: the additional section": func(m *dns.Msg) { m.Extra = append(m.Extra, m.Answer...) },
		"edns=1232 option=65001": func(m *dns.Msg) {
			opt := m.IsEdns0()
			opt.Option = append(opt.Option, &dns.EDNS0_LOCAL{Code: 65001, Data: []byte{0xAB, 0xCD}})
		},
		"limit of 512": func(m *dns.Msg) { m.Answer = slices.Repeat(m.Answer, 60) },
	} {
		got := q.check(reply(change), "udp")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("want %q, got %q", want, got)
		}
	}
	if got := q.check(nil, "udp"); got != "no reply" {
		t.Errorf("check of no reply: got %q, want no reply", got)
	}
	if got := parse("? a.b A\nsilence\n").check(reply(func(*dns.Msg) {}), "udp"); !strings.HasPrefix(got, "want silence") {
		t.Errorf("check of a reply where silence is expected: got %q, want an error", got)
	}
}

// -update replaces the expectations and leaves the rest of the file unchanged.
func TestRewrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.txt")
	s, err := parseScript(file, []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	s.steps[0].cases[1].want = expectation{header: []string{"REFUSED"}, records: [3][]string{1: {"b. 5 IN SOA ns.b. host.b. 77 1 2 3 4"}}}
	if err := s.rewrite(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(good, "silence", "REFUSED\n;authority\nb. 5 IN SOA ns.b. host.b. * 1 2 3 4", 1)
	want = strings.Replace(want, "A.b.  5 IN CNAME	c.b.", "A.b. 5 IN CNAME c.b.", 1)
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
