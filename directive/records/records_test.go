package records

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// plan sets up the records directives of a block for the zone test.
func plan(body string) (*Handler, error) {
	servers, err := corefile.Parse("Corefile", []byte("test:53 {\n"+body+"\n}"))
	if err != nil {
		return nil, err
	}
	b := &config.Block{Zones: []wire.Name{"\x04test\x00"}, Log: slog.New(slog.DiscardHandler), Metrics: &metrics.Registry{}, Chain: &dns.Chain{}}
	b.Begin("records")
	if err := Setup(b, servers[0].Directives); err != nil {
		return nil, corefile.Sorted(err)
	}
	return config.Find[*Handler](b)[0], nil
}

// An asker puts questions to a handler, without sockets.
type asker struct {
	port  dns.Port
	query *dns.Query
	lent  []byte
}

// refuses answers what the handler lets by.
type refuses struct{}

func (refuses) ServeDNS(q *dns.Query) dns.Verdict {
	q.Fail(wire.Refused)
	return dns.Done
}

func run(t testing.TB, body string) *asker {
	t.Helper()
	h, err := plan(body)
	if err != nil {
		t.Fatal(err)
	}
	c := new(dns.Chain)
	c.Add("records", h)
	c.Add("below", refuses{})
	mux := dns.NewMux(dns.NewParkingLot(1), nil)
	if err := mux.Route(wire.Root, c); err != nil {
		t.Fatal(err)
	}
	a := &asker{query: dns.NewQuery(nil), lent: make([]byte, 1<<16)}
	a.port.Swap(mux)
	return a
}

func (a *asker) send(packet []byte) []byte {
	a.query.Reset(append(a.query.Buffer(len(packet))[:0], packet...), dns.UDP, time.Time{})
	a.query.Peer = netip.MustParseAddrPort("10.0.0.1:53012")
	if a.port.Serve(a.query, a.lent) != dns.Answered {
		return nil
	}
	return a.query.Reply()
}

func packet(t testing.TB, name string, qtype uint16) []byte {
	t.Helper()
	p, err := new(mdns.Msg).SetQuestion(name, qtype).Pack()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (a *asker) ask(t testing.TB, name string, qtype uint16) *mdns.Msg {
	t.Helper()
	m := new(mdns.Msg)
	if err := m.Unpack(a.send(packet(t, name, qtype))); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

// What is wrong is told with its line, all of it.
func TestErrors(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"records", "Corefile:2: records: want records in braces, NAME [TTL] [IN] TYPE RDATA..."},
		{"records {\nttl 5\n}", "Corefile:2: records: want records in braces, NAME [TTL] [IN] TYPE RDATA..."},
		{"records {\na.test\na.test A\na.test 60 IN\na.test 60\nttl A 10.0.0.1\n}", `Corefile:3: records: want NAME [TTL] [IN] TYPE RDATA..., got "a.test"
Corefile:4: records: want NAME [TTL] [IN] TYPE RDATA..., got "a.test A"
Corefile:5: records: want NAME [TTL] [IN] TYPE RDATA..., got "a.test 60 IN"
Corefile:6: records: want NAME [TTL] [IN] TYPE RDATA..., got "a.test 60"
Corefile:7: records: ttl. is not in test.`},
		{"records {\nttl\nttl 5\nttl x\nttl -1\na.test A 10.0.0.1\n}", `Corefile:3: records: ttl: want 1 argument, got 0
Corefile:4: records: ttl: already given on line 3
Corefile:5: records: ttl: already given on line 4
Corefile:6: records: ttl: already given on line 5`},
		{"records {\nttl 2147483648\na.test A 10.0.0.1\n}", `Corefile:3: records: ttl: want 0..2147483647, got "2147483648"`},
		{"records a..b {\na.test A 10.0.0.1\n}", `Corefile:2: records: not a zone: "a..b": empty label`},
		{"records {\na.example A 10.0.0.1\nTest A 10.0.0.1\n*.test A 10.0.0.1\n* A 10.0.0.1\n}", `Corefile:3: records: a.example. is not in test.
Corefile:6: records: *. is not in test.`},
		{"records b.test 10.0.0.0/8 {\nb.test A 10.0.0.1\na.test A 10.0.0.1\n1.0.0.11.in-addr.arpa PTR a.test\n}", `Corefile:4: records: a.test. is not in b.test. or 10.in-addr.arpa.
Corefile:5: records: 1.0.0.11.in-addr.arpa. is not in b.test. or 10.in-addr.arpa.`},
		{"records {\n@ A 10.0.0.1\na..test A 10.0.0.1\n}", `Corefile:3: records: want a name, got @: there is no zone here
Corefile:4: records: not a name: "a..test": empty label`},
		{"records {\na.test A 10.0.0.300\na.test AAA ::1\na.test CH A 10.0.0.1\na.test DNAME b.test\na.test ANY \"\\#\" 0\na.test MX 10\n}", `Corefile:3: records: bad A A: "10.0.0.300"
Corefile:4: records: want NAME [TTL] [IN] TYPE RDATA..., got "AAA" for a TYPE
Corefile:5: records: want class IN, got CH
Corefile:6: records: DNAME records are not for here: file has them
Corefile:7: records: want NAME [TTL] [IN] TYPE RDATA..., got "ANY" for a TYPE
Corefile:8: records: bad MX Mx: " "`},
		{"records {\na.test A 10.0.0.1 10.0.0.2\na.test A 10.0.0.1 ; comment\na.test A {\n}\n}", `Corefile:3: records: garbage after rdata: "10.0.0.2"
Corefile:4: records: garbage after rdata: "\""
Corefile:5: records: a record has no braces`},
		{"records {\na.test A 10.0.0.1\nA.test CNAME b.test\nb.test CNAME a.test\nb.test TXT x\nb.test CNAME a.test\nb.test CNAME c.test\n*.test CNAME a.test\n*.test A 10.0.0.1\n}", `Corefile:4: records: a.test. has a CNAME record and others: see Corefile:3
Corefile:6: records: b.test. has a CNAME record and others: see Corefile:5
Corefile:8: records: b.test. has a second CNAME record: see Corefile:5
Corefile:10: records: *.test. has a CNAME record and others: see Corefile:9`},
		{"records {\na.test CNAME b.test\n}\nrecords test {\na.test A 10.0.0.1\n}", "Corefile:6: records: a.test. has a CNAME record and others: see Corefile:3"},
		{"records {\ntest SOA a b 1 2 3 4 5\ntest SOA a b 1 2 3 4 5\ntest SOA a b 2 2 3 4 5\n}", "Corefile:5: records: test. has a second SOA record: see Corefile:3"},
	} {
		if _, err := plan(c.body); err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.body, err, c.want)
		}
	}
}

// Words of a Corefile are RDATA as a zone file would have it.
func TestRData(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`TXT a b`, `TXT "a" "b"`},
		{`TXT "a b" c`, `TXT "a b" "c"`},
		{`TXT ""`, `TXT ""`},
		{`TXT "say \"hi\""`, `TXT "say \"hi\""`},
		{`TXT a;b (c) ;`, `TXT "a;b" "(c)" ";"`},
		{`TXT "back\\slash \065"`, `TXT "back\\slash A"`},
		{`TXT back\\slash`, `TXT "back\\slash"`},
		{`TXT "end\\"`, `TXT "end\\"`},
		{`TXT end\`, `TXT "end\\"`},
		{"TXT \"two\nlines\"", `TXT "two\010lines"`},
		{`TXT ` + strings.Repeat("x", 300), `TXT "` + strings.Repeat("x", 255) + `" "` + strings.Repeat("x", 45) + `"`},
		{`TXT "#1"`, `TXT "#1"`},
		{`spf v=spf1`, `SPF "v=spf1"`},
		{`CAA 0 issue letsencrypt.org`, `CAA 0 issue "letsencrypt.org"`},
		{`HINFO "a b" c`, `HINFO "a b" "c"`},
		{`URI 10 1 "https://example.test/a b"`, `URI 10 1 "https://example.test/a b"`},
		{`NAPTR 100 50 "u" "E2U+sip" "!^.*$!sip:\\1@x.test!" .`, `NAPTR 100 50 "u" "E2U+sip" "!^.*$!sip:\\1@x.test!" .`},
		{`NAPTR 100 50 s SIP+D2U "" _sip._udp.test`, `NAPTR 100 50 "s" "SIP+D2U" "" _sip._udp.test.`},
		{`HTTPS 1 . alpn=h2,h3 port=443 ipv6hint=fd00::1`, `HTTPS 1 . alpn="h2,h3" port="443" ipv6hint="fd00::1"`},
		{`HTTPS 1 svc.test alpn="h2,h3" key65333="a;b"`, `HTTPS 1 svc.test. alpn="h2,h3" key65333="a\;b"`},
		{`SVCB 1 . "alpn=h2 port=443"`, `SVCB 1 . alpn="h2" port="443"`},
		{`SVCB 1 . key65333=a;b`, `SVCB 1 . key65333="a\;b"`},
		{`CNAME a\.b.test`, `CNAME a\.b.test.`},
		{`SRV 0 0 80 b`, `SRV 0 0 80 b.`},
		{`TYPE65280 "\#" 1 ff`, `TYPE65280 \# 1 ff`},
		{`60 A 10.0.0.1`, `A 10.0.0.1`},
		{`IN 1h A 10.0.0.1`, `A 10.0.0.1`},
		{`LOC 52 22 23.000 N 4 53 32.000 E -2.00m`, `LOC 52 22 23.000 N 4 53 32.000 E -2.00m 1m`},
	} {
		a := run(t, "records {\na.test "+c.line+"\n}")
		want, err := mdns.NewRR("a.test. 3600 IN " + c.want)
		if err != nil {
			t.Fatal(err)
		}
		m := a.ask(t, "a.test.", want.Header().Rrtype)
		if len(m.Answer) != 1 {
			t.Errorf("%s: %v", c.line, m)
			continue
		}
		want.Header().Ttl = m.Answer[0].Header().Ttl
		if got := m.Answer[0].String(); got != want.String() {
			t.Errorf("%s\ngot  %s\nwant %s", c.line, got, want)
		}
	}
}

// A TTL may stand before the type, and one of the directive holds for records above
// it as well.
func TestTTL(t *testing.T) {
	a := run(t, "records {\na.test A 10.0.0.1\nb.test 1h30m A 10.0.0.1\nc.test IN 0 A 10.0.0.1\nttl 7\n}\nrecords {\nd.test A 10.0.0.1\n}")
	for name, want := range map[string]uint32{"a.test.": 7, "b.test.": 5400, "c.test.": 0, "d.test.": 3600} {
		if got := a.ask(t, name, mdns.TypeA).Answer[0].Header().Ttl; got != want {
			t.Errorf("%s: TTL %d, want %d", name, got, want)
		}
	}
}

// Every name above a name with records exists.
func TestNameExists(t *testing.T) {
	h, err := plan("records {\nx.y.test A 10.0.0.1\n*.w.test A 10.0.0.1\n}")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"x.y.test": false, "y.test": true, "test": true, ".": true, "w.test": true, "v.w.test": false, "z.test": false} {
		n, _ := wire.ParseName(name)
		q := dns.NewQuery(nil)
		q.Parse(wire.AppendRequest(nil, 1, 0, []byte(n), wire.TypeA))
		if got := h.NameExists(q); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// More records than fit are cut off, and the client hears of it.
func TestTruncation(t *testing.T) {
	var body strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&body, "a.test A 10.0.%d.%d\nmx.test MX 1 a%d.test\na%d.test A 10.1.0.1\n", i/256, i%256, i, i)
	}
	a := run(t, "records {\n"+body.String()+"}")
	for name, qtype := range map[string]uint16{"a.test.": mdns.TypeA, "mx.test.": mdns.TypeMX} {
		reply := a.send(packet(t, name, qtype))
		m := new(mdns.Msg)
		if err := m.Unpack(reply); err != nil || !m.Truncated || len(reply) > 512 || len(m.Answer) == 0 {
			t.Errorf("%s: %d bytes, %v, %v", name, len(reply), err, m.MsgHdr)
		}
	}
}

// No answer needs memory, with additional records, wildcards and aliases neither.
func TestAllocations(t *testing.T) {
	a := run(t, "records {\na.test A 10.0.0.1\na.test A 10.0.0.2\na.test MX 10 b.test\nb.test AAAA fd00::1\n*.w.test SRV 0 0 80 a.test\nc.test CNAME d.test\nd.test CNAME a.test\n}")
	for _, c := range []struct {
		name    string
		qtype   uint16
		records int
	}{
		{"a.test.", mdns.TypeA, 2}, {"A.test.", mdns.TypeMX, 2}, {"x.y.w.test.", mdns.TypeSRV, 3}, {"a.test.", mdns.TypeTXT, 0},
		{"none.test.", mdns.TypeA, 0}, {"c.test.", mdns.TypeA, 4}, {"a.test.", mdns.TypeANY, 3},
	} {
		p := packet(t, c.name, c.qtype)
		m := new(mdns.Msg)
		if err := m.Unpack(a.send(p)); err != nil || len(m.Answer)+len(m.Extra) != c.records {
			t.Errorf("%s %d: %v, %v", c.name, c.qtype, err, m)
		}
		if n := testing.AllocsPerRun(100, func() { a.send(p) }); n != 0 {
			t.Errorf("%s %d: %v allocations", c.name, c.qtype, n)
		}
	}
}

// Whatever the words are, they are one record of the name that was given; text is
// what was written.
func FuzzParse(f *testing.F) {
	for _, line := range []string{"TXT\x00a b\x00c", "60\x00IN\x00A\x0010.0.0.1", "HTTPS\x001\x00.\x00alpn=\"h2", "TXT\x00\\\"\x00\\", "NAPTR\x001\x001\x00\"\x00\n\x00;\x00.",
		"TXT\x00\"\nb.test. A 10.0.0.1", "A;\x0010.0.0.1", "5\nb\x00A\x0010.0.0.1", "TXT\x00(\x00)", "MX\x001\x00a\\", "SVCB\x001\x00.\x00key9=\\", "TXT\x00\\065\\"} {
		f.Add("a.test", line)
	}
	f.Fuzz(func(t *testing.T, name, line string) {
		words := strings.Split(line, "\x00")
		o := corefile.Directive{Token: corefile.Token{Text: name}}
		for _, w := range words {
			o.Args = append(o.Args, corefile.Token{Text: w})
		}
		owner, r, err := parse(o, 60)
		if err != nil {
			return
		}
		if want, err := wire.ParseName(name); err != nil || owner != want {
			t.Fatalf("%q: owner %q, want %q, %v", name, owner, want, err)
		}
		if r.Class != wire.ClassIN || r.Owner != wire.Root {
			t.Fatalf("%q: %+v", words, r)
		}
		if words[0] != "TXT" || strings.Contains(line, "\\") {
			return
		}
		var got []string
		for rdata := r.RData; rdata != ""; {
			next := 1 + int(rdata[0])
			got = append(got, rdata[1:next])
			rdata = rdata[next:]
		}
		if strings.Join(got, "") != strings.Join(words[1:], "") || !slices.ContainsFunc(words, func(w string) bool { return len(w) > 255 }) && len(got) != len(words)-1 {
			t.Fatalf("%q came out as %q", words[1:], got)
		}
	})
}
