package records

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/zonefile"
)

// plan sets up the records directives in body, in a server block for test.
func plan(body string) (*Handler, error) {
	text := "test:53 {\n" + body + "\n}\n"
	b, err := chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "records", Setup: Setup})
	if err != nil {
		return nil, err
	}
	return config.Find[*Handler](b)[0], nil
}

// A server answers queries over UDP.
type server struct{ *chaintest.Server }

// A refuser answers all queries with REFUSED.
type refuser struct{}

func (refuser) ServeDNS(q *dns.Query) dns.Verdict {
	q.Fail(wire.Refused)
	return dns.Done
}

// A meter is a handler that records the size of the answer.
type meter struct {
	*Handler
	bytes int
}

func (m *meter) ServeDNS(q *dns.Query) dns.Verdict {
	v := m.Handler.ServeDNS(q)
	m.bytes = len(q.Answer.Buf)
	return v
}

// run returns a server with the records directives in body.
func run(t testing.TB, body string) *server {
	t.Helper()
	h, err := plan(body)
	if err != nil {
		t.Fatalf("%s\nerror: %v", body, err)
	}
	return serve(t, h)
}

func serve(t testing.TB, h dns.Handler) *server {
	t.Helper()
	c := chaintest.NewChain("records", h, "refuser", refuser{})
	s := &server{chaintest.NewServer(t, map[string]*dns.Chain{".": c})}
	s.Prepare = func(q *dns.Query) { q.Peer = netip.MustParseAddrPort("10.0.0.1:53012") }
	return s
}

// send returns the reply to packet, or nil.
func (s *server) send(packet []byte) []byte { return s.Serve(packet, dns.UDP) }

func packet(t testing.TB, name string, qtype uint16) []byte {
	t.Helper()
	return chaintest.Pack(t, chaintest.Query(name, mdns.Type(qtype).String()))
}

func (s *server) ask(name string, qtype uint16) *mdns.Msg {
	return s.Ask(chaintest.Query(name, mdns.Type(qtype).String()), dns.UDP)
}

// Every error is reported, with its line.
func TestSetupErrors(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"records", "Corefile:2: records: want records in braces, NAME [TTL] [IN] TYPE RDATA..."},
		{"records {\nttl 5\n}", "Corefile:2: records: want records in braces, NAME [TTL] [IN] TYPE RDATA..."},
		{"records {\na.test\na.test A\na.test 60 IN\na.test 60\nttl A 10.0.0.1\n}", `Corefile:3: records: want NAME [TTL] [IN] TYPE RDATA..., got "a.test"
Corefile:4: records: want NAME [TTL] [IN] TYPE RDATA..., got "a.test A"
Corefile:5: records: want NAME [TTL] [IN] TYPE RDATA..., got "a.test 60 IN"
Corefile:6: records: want NAME [TTL] [IN] TYPE RDATA..., got "a.test 60"
Corefile:7: records: ttl. is not in test.`},
		{"records {\nttl\nttl 5\nttl x\nttl -1\na.test A 10.0.0.1\n}", `Corefile:3: records: ttl: got no arguments, usage: ttl SECONDS
Corefile:4: records: ttl: already given on line 3
Corefile:5: records: ttl: already given on line 4
Corefile:6: records: ttl: already given on line 5`},
		{"records {\nttl 2147483648\na.test A 10.0.0.1\n}", `Corefile:3: records: ttl: want 0..2147483647, got "2147483648"`},
		{"records a..b {\na.test A 10.0.0.1\n}", `Corefile:2: records: not a zone: "a..b": empty label`},
		{"records {\na.example A 10.0.0.1\nTest A 10.0.0.1\n*.test A 10.0.0.1\n* A 10.0.0.1\n}", `Corefile:3: records: a.example. is not in test.
Corefile:6: records: *. is not in test.`},
		{"records b.test 10.0.0.0/8 {\nb.test A 10.0.0.1\na.test A 10.0.0.1\n1.0.0.11.in-addr.arpa PTR a.test\n}", `Corefile:4: records: a.test. is not in b.test. or 10.in-addr.arpa.
Corefile:5: records: 1.0.0.11.in-addr.arpa. is not in b.test. or 10.in-addr.arpa.`},
		{"records {\n@ A 10.0.0.1\na..test A 10.0.0.1\n}", `Corefile:3: records: want an absolute name, got @
Corefile:4: records: not a name: "a..test": empty label`},
		{"records {\na.test A 10.0.0.300\na.test AAA ::1\na.test CH A 10.0.0.1\na.test DNAME b.test\na.test ANY \"\\#\" 0\na.test MX 10\n}", `Corefile:3: records: bad A A: "10.0.0.300"
Corefile:4: records: want NAME [TTL] [IN] TYPE RDATA...: unknown type "AAA"
Corefile:5: records: want class IN, got CH
Corefile:6: records: DNAME records are not supported: use the file directive
Corefile:7: records: want NAME [TTL] [IN] TYPE RDATA...: unknown type "ANY"
Corefile:8: records: bad MX Mx: " "`},
		{"records {\na.test A 10.0.0.1 10.0.0.2\na.test A 10.0.0.1 ; comment\na.test A {\n}\n}", `Corefile:3: records: garbage after rdata: "10.0.0.2"
Corefile:4: records: garbage after rdata: "\""
Corefile:5: records: a record takes no block in braces`},
		{"records {\na.test A 10.0.0.1\nA.test CNAME b.test\nb.test CNAME a.test\nb.test TXT x\nb.test CNAME a.test\nb.test CNAME c.test\n*.test CNAME a.test\n*.test A 10.0.0.1\n}", `Corefile:4: records: a.test. has a CNAME record and other records: see Corefile:3
Corefile:6: records: b.test. has a CNAME record and other records: see Corefile:5
Corefile:8: records: b.test. has a second CNAME record: see Corefile:5
Corefile:10: records: *.test. has a CNAME record and other records: see Corefile:9`},
		{"records {\na.test CNAME b.test\n}\nrecords test {\na.test A 10.0.0.1\n}", "Corefile:6: records: a.test. has a CNAME record and other records: see Corefile:3"},
		{"records {\ntest SOA a b 1 2 3 4 5\ntest SOA a b 1 2 3 4 5\ntest SOA a b 2 2 3 4 5\n}", "Corefile:5: records: test. has a second SOA record: see Corefile:3"},
	} {
		if _, err := plan(c.body); err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot error %v\nwant      %s", c.body, err, c.want)
		}
	}
}

// Words of the Corefile mean the same as the RDATA of a zone file.
func TestRDATA(t *testing.T) {
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
			t.Fatalf("%s: error %v", c.want, err)
		}
		m := a.ask("a.test.", want.Header().Rrtype)
		if len(m.Answer) != 1 {
			t.Errorf("%s: got %d records, want %s\n%v", c.line, len(m.Answer), want, m)
			continue
		}
		want.Header().Ttl = m.Answer[0].Header().Ttl
		if got := m.Answer[0].String(); got != want.String() {
			t.Errorf("%s\ngot  %s\nwant %s", c.line, got, want)
		}
	}
}

// The option ttl applies to records above it too, in the same directive only.
func TestTTL(t *testing.T) {
	a := run(t, "records {\na.test A 10.0.0.1\nb.test 1h30m A 10.0.0.1\nc.test IN 0 A 10.0.0.1\nttl 7\n}\nrecords {\nd.test A 10.0.0.1\n}")
	for name, want := range map[string]uint32{"a.test.": 7, "b.test.": 5400, "c.test.": 0, "d.test.": 3600} {
		if got := a.ask(name, mdns.TypeA).Answer[0].Header().Ttl; got != want {
			t.Errorf("%s: got TTL %d, want %d", name, got, want)
		}
	}
}

// Every ancestor of a name with records exists.
func TestNameExists(t *testing.T) {
	h, err := plan("records {\nx.y.test A 10.0.0.1\n*.w.test A 10.0.0.1\n}")
	if err != nil {
		t.Fatalf("plan: error %v", err)
	}
	for name, want := range map[string]bool{"x.y.test": false, "y.test": true, "test": true, ".": true, "w.test": true, "v.w.test": false, "z.test": false} {
		n, _ := wire.ParseName(name)
		q := dns.NewQuery(nil)
		q.Parse(wire.AppendRequest(nil, 1, 0, []byte(n), wire.TypeA))
		if got := h.NameExists(q); got != want {
			t.Errorf("NameExists(%s) = %v, want %v", name, got, want)
		}
	}
}

// A reply with more records than the client's size is truncated, and the handler
// writes few more records than the reply holds.
func TestTruncation(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	const records = 20_000
	var body strings.Builder
	for i := range records {
		fmt.Fprintf(&body, "a.test A 10.1.%d.%d\nmx.test MX 1 a%d.test\na%d.test A 10.1.0.1\n", i/256, i%256, i, i)
	}
	h, err := plan("records {\n" + body.String() + "}")
	if err != nil {
		t.Fatalf("plan: error %v", err)
	}
	m := &meter{Handler: h}
	s := serve(t, m)
	for _, c := range []struct {
		name  string
		qtype uint16
	}{{"a.test.", mdns.TypeA}, {"a.test.", mdns.TypeANY}, {"mx.test.", mdns.TypeMX}} {
		const limit = 512
		reply := s.send(packet(t, c.name, c.qtype))
		msg := new(mdns.Msg)
		if err := msg.Unpack(reply); err != nil || !msg.Truncated || len(reply) > limit || len(msg.Answer) == 0 {
			t.Errorf("%s %s: got %d bytes, error %v, %v; want a truncated reply of at most %d bytes with records", c.name, mdns.Type(c.qtype), len(reply), err, msg.MsgHdr, limit)
		}
		if m.bytes > 4*limit {
			t.Errorf("%s %s: the handler wrote %d bytes, want at most %d", c.name, mdns.Type(c.qtype), m.bytes, 4*limit)
		}
	}
}

// The addresses of targets are left out when the answer section exceeds the limit.
func TestTruncationAdditional(t *testing.T) {
	var body strings.Builder
	for i := range 20 { // fits into a reply, without addresses
		fmt.Fprintf(&body, "mx.test MX 1 a%d.test\n", i)
		for j := range 1000 {
			fmt.Fprintf(&body, "a%d.test A 10.%d.%d.%d\n", i, i, j/256, j%256)
		}
	}
	h, err := plan("records {\n" + body.String() + "}")
	if err != nil {
		t.Fatalf("plan: error %v", err)
	}
	m := &meter{Handler: h}
	msg := serve(t, m).ask("mx.test.", mdns.TypeMX)
	if msg.Truncated || len(msg.Answer) != 20 {
		t.Errorf("mx.test. MX: got TC %v and %d records, want a complete answer of 20", msg.Truncated, len(msg.Answer))
	}
	if m.bytes > 2048 {
		t.Errorf("mx.test. MX: the handler wrote %d bytes, want at most 2048", m.bytes)
	}
}

// A draft finds duplicates, and the targets of records, in time proportional to the number of
// records.
func TestLargeRRset(t *testing.T) {
	const records = 100_000
	var d draft
	for i := range 2 * records {
		i %= records // the second half are duplicates
		host := fmt.Sprintf("\x08%08d\x04test\x00", i)
		r := zonefile.Record{Type: wire.TypeMX, RData: "\x00\x01" + host}
		if err := d.add(place{}, "\x02mx\x04test\x00", r); err != nil {
			t.Fatalf("add %s: error %v", host, err)
		}
	}

	distinct := 0
	for _, sets := range objects.Owners(d.pack()) {
		for s := range (&entry{Value: sets}).rrsets() {
			for rest := s.records; rest != ""; {
				var r record
				if r, rest = nextRecord(rest); !r.repeated {
					distinct++
				}
			}
		}
	}
	if d.records != records || distinct != records {
		t.Errorf("mx.test. MX: got %d records and %d targets, want %d of each", d.records, distinct, records)
	}
}

// No answer allocates, including answers with additional records, wildcards and CNAME
// records.
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
			t.Errorf("%s %s: got error %v and %d records, want %d\n%v", c.name, mdns.Type(c.qtype), err, len(m.Answer)+len(m.Extra), c.records, m)
		}
		if n := testing.AllocsPerRun(100, func() { a.send(p) }); n != 0 {
			t.Errorf("%s %s: got %v allocations, want 0", c.name, mdns.Type(c.qtype), n)
		}
	}
}

// Any accepted words are one record of the given owner name, and the strings of a TXT
// record are the words.
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
			t.Fatalf("%q: got owner %q, want %q (error %v)", name, owner, want, err)
		}
		if r.Class != wire.ClassIN || r.Owner != wire.Root {
			t.Fatalf("%q: got class %s and owner %q, want IN and the root", words, r.Class, r.Owner)
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
			t.Fatalf("%q: got strings %q, want the words", words, got)
		}
	})
}
