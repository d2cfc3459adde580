package dns64

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

func plan(text string) (*config.Block, error) {
	return chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "dns64", Setup: Setup})
}

func TestSetupErrors(t *testing.T) {
	for _, c := range []struct{ directive, want string }{
		{"dns64\ndns64", "Corefile:3: dns64: already given at Corefile:2, and can be given once in a server block"},
		{"dns64 64:ff9b::/96 more", "Corefile:2: dns64: want at most 1 argument, got 2"},
		{"dns64 64:ff9b::", `Corefile:2: dns64: want an IPv6 prefix like 64:ff9b::/96, got "64:ff9b::"`},
		{"dns64 192.0.2.0/24", `Corefile:2: dns64: want an IPv6 prefix like 64:ff9b::/96, got "192.0.2.0/24"`},
		{"dns64 ::ffff:0:0/96", `Corefile:2: dns64: want an IPv6 prefix like 64:ff9b::/96, got "::ffff:0:0/96"`},
		{"dns64 {\n prefix\n}", "Corefile:3: dns64: prefix: got no arguments, usage: prefix PREFIX"},
		{"dns64 {\n prefix a b\n}", "Corefile:3: dns64: prefix: got 2 arguments, usage: prefix PREFIX"},
		{"dns64 {\n prefix 64:ff9b::/97\n}", `Corefile:3: dns64: prefix: want a length of 32, 40, 48, 56, 64 or 96, got "64:ff9b::/97"`},
		{"dns64 {\n prefix 64:ff9b:0:0:ff00::/96\n}", "Corefile:3: dns64: prefix: 64:ff9b:0:0:ff00::/96: bits 64 to 71 must be zero (RFC 6052)"},
		{"dns64 {\n translate_all yes\n}", "Corefile:3: dns64: translate_all: want no argument, got 1"},
		{"dns64 {\n allow_ipv4 yes\n}", "Corefile:3: dns64: allow_ipv4: want no argument, got 1"},
		{"dns64 {\n allow_ipv6\n}", `Corefile:3: dns64: unknown option "allow_ipv6"; did you mean "allow_ipv4"?`},
	} {
		if _, err := plan(".:53 {\n" + c.directive + "\n}\n"); err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.directive, err, c.want)
		}
	}
}

// The table of RFC 6052 §2.4, in both directions.
func TestEmbedExtract(t *testing.T) {
	v4 := netip.MustParseAddr("192.0.2.33")
	for prefix, want := range map[string]string{
		"2001:db8::/32":            "2001:db8:c000:221::",
		"2001:db8:100::/40":        "2001:db8:1c0:2:21::",
		"2001:db8:122::/48":        "2001:db8:122:c000:2:2100::",
		"2001:db8:122:300::/56":    "2001:db8:122:3c0:0:221::",
		"2001:db8:122:344::/64":    "2001:db8:122:344:c0:2:2100::",
		"2001:db8:122:344::/96":    "2001:db8:122:344::192.0.2.33",
		"64:ff9b::/96":             "64:ff9b::192.0.2.33",
		"64:ff9b:1:fffe::/96":      "64:ff9b:1:fffe::c000:221",
		"2001:db8:122:344:5::1/64": "2001:db8:122:344:c0:2:2100::",
	} {
		p, err := parsePrefix(corefile.Directive{}, prefix)
		if err != nil {
			t.Error(err)
			continue
		}
		got := netip.AddrFrom16(embed(p, v4.As4()))
		if got != netip.MustParseAddr(want) {
			t.Errorf("embed(%s, %s) = %s, want %s", prefix, v4, got, want)
		}
		if back, ok := extract(p, got); !ok || back != v4 {
			t.Errorf("extract(%s, %s) = %s, %v; want %s, true", prefix, got, back, ok, v4)
		}
		name, _ := mdns.ReverseAddr(got.String())
		wireName, _ := wire.ParseName(name)
		q := dns.NewQuery(nil)
		q.Parse(wire.AppendRequest(nil, 1, 0, []byte(wireName), wire.TypePTR))
		if ip, ok := (&DNS64{prefix: p}).reversed(q); !ok || ip != v4 {
			t.Errorf("reversed(%s) = %s, %v; want %s, true", name, ip, ok, v4)
		}
	}
	if _, ok := extract(netip.MustParsePrefix("2001:db8::/32"), netip.MustParseAddr("2001:db8:c000:221::1")); ok {
		t.Error("extract(2001:db8::/32, 2001:db8:c000:221::1): got an address, want none")
	}
	name, _ := mdns.ReverseAddr("192.0.2.33")
	if got := wire.Name(reverseName(v4)).String(); got != name {
		t.Errorf("reverseName(%s) = %s, want %s", v4, got, name)
	}
	h := &DNS64{prefix: netip.MustParsePrefix("::/32")}
	for _, name := range []string{"ip6.arpa.", "1.2.ip6.arpa.", strings.Repeat("g.", 32) + "ip6.arpa.", strings.Repeat("1.", 31) + "10.ip6.arpa.", strings.Repeat("1.", 32) + "ip7.arpa."} {
		n, _ := wire.ParseName(name)
		q := dns.NewQuery(nil)
		q.Parse(wire.AppendRequest(nil, 1, 0, []byte(n), wire.TypePTR))
		if ip, ok := h.reversed(q); ok {
			t.Errorf("reversed(%s) = %s, want no address", name, ip)
		}
	}
}

// A backend is the handler below dns64.
type backend struct {
	t         *testing.T
	records   []mdns.RR
	codes     map[string]wire.RCode // by name and type
	park      bool                  // park every query
	truncated []wire.Type           // set TC in answers to queries for these types
}

func (w *backend) ServeDNS(q *dns.Query) dns.Verdict {
	if w.park {
		return dns.Wait
	}
	return w.answer(q)
}

func (w *backend) Resolve(_ context.Context, q *dns.Query) error {
	w.answer(q)
	return nil
}

func (w *backend) answer(q *dns.Query) dns.Verdict {
	q.TC = slices.Contains(w.truncated, q.Type)
	name := wire.Name(q.Name()).String()
	q.RCode = wire.NXDomain
	if code, ok := w.codes[name+" "+q.Type.String()]; ok {
		q.RCode = code
		return dns.Done
	}
	for _, rr := range w.records {
		h := rr.Header()
		if h.Rrtype == mdns.TypeSOA {
			w.add(q, wire.Authority, rr)
		}
		if h.Name != name {
			continue
		}
		q.RCode = wire.NoError
		if wire.Type(h.Rrtype) == q.Type || h.Rrtype == mdns.TypeCNAME {
			w.add(q, wire.Answers, rr)
		}
		if c, ok := rr.(*mdns.CNAME); ok {
			name = c.Target
		}
	}
	return dns.Done
}

func (w *backend) add(q *dns.Query, s wire.Section, rr mdns.RR) {
	m := &mdns.Msg{Answer: []mdns.RR{rr}}
	packed, err := m.Pack()
	if err != nil {
		w.t.Fatal(err)
	}
	if s == wire.Answers && q.Answer.Count[wire.Authority] > 0 {
		q.Answer.Clear() // drop the SOA record
	}
	if _, err := q.Answer.AppendRecord(s, packed, wire.HeaderLen); err != nil {
		w.t.Fatal(err)
	}
}

type testServer struct {
	*chaintest.Server
	t     *testing.T
	block *config.Block
}

func start(t *testing.T, text string, below *backend) *testServer {
	t.Helper()
	b, err := plan(".:53 {\n" + text + "\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	b.SetDirective("backend")
	b.Handle(below)
	chain := b.Chain.CopyFor("dns://:53", ".")
	return &testServer{Server: chaintest.NewServer(t, map[string]*dns.Chain{".": chain}), t: t, block: b}
}

// exchange returns the response code and the answer records of the reply, and
// reports whether the query was parked.
func (r *testServer) exchange(m *mdns.Msg, peer string) (reply string, parked bool) {
	r.t.Helper()
	r.Prepare = func(q *dns.Query) { q.Peer = netip.MustParseAddrPort(peer) }
	answer := r.Ask(m, dns.UDP)
	parked = r.Last == nil
	reply = mdns.RcodeToString[answer.Rcode]
	if answer.Truncated {
		reply += " TC"
	}
	for _, rr := range answer.Answer {
		reply += fmt.Sprintf(" %s %d %s", mdns.TypeToString[rr.Header().Rrtype], rr.Header().Ttl, mdns.Field(rr, 1))
	}
	return reply, parked
}

const (
	v6 = "[2001:db8::1]:5353"
	v4 = "192.0.2.1:5353"
)

func records(t *testing.T, text string) (rrs []mdns.RR) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		rr, err := mdns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		rrs = append(rrs, rr)
	}
	return rrs
}

const zone = `
	alias.test. 60 IN CNAME four.test.
	four.test. 300 IN A 192.0.2.33
	four.test. 900 IN A 192.0.2.34
	four.test. 900 IN MX 10 mail.test.
	both.test. 300 IN A 192.0.2.33
	both.test. 300 IN AAAA 2001:db8::33
	mapped.test. 300 IN A 192.0.2.33
	mapped.test. 300 IN AAAA ::ffff:192.0.2.99
	some.test. 300 IN AAAA ::ffff:192.0.2.99
	some.test. 300 IN AAAA 2001:db8::33
	lost.test. 60 IN CNAME nowhere.test.
	mail.test. 60 IN TXT nothing
	six.test. 60 IN AAAA 2001:db8::6
	broken6.test. 60 IN A 192.0.2.35
	33.2.0.192.in-addr.arpa. 60 IN PTR four.test.
`

func TestAAAAAnswers(t *testing.T) {
	codes := map[string]wire.RCode{
		"broken6.test. AAAA": wire.ServFail, "broken.test. AAAA": wire.ServFail, "broken.test. A": wire.ServFail,
		"broken4.test. AAAA": wire.NoError, "broken4.test. A": wire.ServFail, "odd.test. AAAA": wire.NoError,
	}
	reverse, _ := mdns.ReverseAddr("64:ff9b::192.0.2.33")
	unknown, _ := mdns.ReverseAddr("64:ff9b::192.0.2.44")
	outside, _ := mdns.ReverseAddr("2001:db8::192.0.2.33")
	for _, c := range []struct{ options, name, qtype, want string }{
		{"", "four.test.", "AAAA", "NOERROR AAAA 300 64:ff9b::c000:221 AAAA 600 64:ff9b::c000:222"},
		{"", "four.test.", "A", "NOERROR A 300 192.0.2.33 A 900 192.0.2.34"},
		{"", "four.test.", "MX", "NOERROR MX 900 10"},
		{"", "both.test.", "AAAA", "NOERROR AAAA 300 2001:db8::33"},
		{"translate_all", "both.test.", "AAAA", "NOERROR AAAA 300 64:ff9b::c000:221"},
		{"translate_all", "six.test.", "AAAA", "NOERROR AAAA 60 2001:db8::6"},
		{"", "mapped.test.", "AAAA", "NOERROR AAAA 300 64:ff9b::c000:221"},
		{"", "some.test.", "AAAA", "NOERROR AAAA 300 2001:db8::33"},
		{"", "alias.test.", "AAAA", "NOERROR CNAME 60 four.test. AAAA 300 64:ff9b::c000:221 AAAA 600 64:ff9b::c000:222"},
		{"", "lost.test.", "AAAA", "NOERROR CNAME 60 nowhere.test."},
		{"", "mail.test.", "AAAA", "NOERROR"},
		{"", "none.test.", "AAAA", "NXDOMAIN"},
		{"", "broken6.test.", "AAAA", "NOERROR AAAA 60 64:ff9b::c000:223"},
		{"", "broken.test.", "AAAA", "SERVFAIL"},
		{"", "broken4.test.", "AAAA", "SERVFAIL"},
		{"", "odd.test.", "AAAA", "NOERROR"},
		{"prefix 2001:db8:122::/48", "four.test.", "AAAA", "NOERROR AAAA 300 2001:db8:122:c000:2:2100:: AAAA 600 2001:db8:122:c000:2:2200::"},
		{"", reverse, "PTR", "NOERROR CNAME 60 33.2.0.192.in-addr.arpa. PTR 60 four.test."},
		{"", unknown, "PTR", "NXDOMAIN CNAME 600 44.2.0.192.in-addr.arpa."},
		{"", outside, "PTR", "NXDOMAIN"},
		{"", reverse, "TXT", "NXDOMAIN"},
	} {
		for _, park := range []bool{false, true} {
			below := &backend{t: t, records: records(t, zone), codes: codes, park: park}
			r := start(t, "dns64 {\n"+c.options+"\n}", below)
			query := new(mdns.Msg).SetQuestion(c.name, mdns.StringToType[c.qtype])
			got, _ := r.exchange(query, v6)
			if got != c.want {
				t.Errorf("%s: %s %s, park %v\ngot  %s\nwant %s", c.options, c.name, c.qtype, park, got, c.want)
			}
		}
	}
}

// TC of a sub-query's answer is copied to the reply, also if the answer has nothing to translate. A truncated answer
// remains: it may lack records that need no translation.
func TestTruncatedSubQuery(t *testing.T) {
	reverse, _ := mdns.ReverseAddr("64:ff9b::192.0.2.33")
	for _, park := range []bool{false, true} {
		for _, c := range []struct {
			truncated         wire.Type
			name, qtype, want string
		}{
			{wire.TypePTR, reverse, "PTR", "NOERROR TC CNAME 60 33.2.0.192.in-addr.arpa. PTR 60 four.test."},
			{wire.TypeA, "four.test.", "AAAA", "NOERROR TC AAAA 300 64:ff9b::c000:221 AAAA 600 64:ff9b::c000:222"},
			{wire.TypeA, "mail.test.", "AAAA", "NOERROR TC"},
			{wire.TypeAAAA, "four.test.", "AAAA", "NOERROR TC"},
		} {
			w := &backend{t: t, park: park, truncated: []wire.Type{c.truncated}, records: records(t, zone)}
			r := start(t, "dns64", w)
			if got, _ := r.exchange(new(mdns.Msg).SetQuestion(c.name, mdns.StringToType[c.qtype]), "[2001:db8::1]:53"); got != c.want {
				t.Errorf("park %v: %s %s: got %s, want %s", park, c.name, c.qtype, got, c.want)
			}
		}
	}
}

// The TTL of the SOA record in the negative answer limits the TTL of the AAAA records. Answers with these are counted,
// and no others.
func TestNegativeTTLLimit(t *testing.T) {
	r := start(t, "dns64", &backend{t: t, records: records(t, zone+"\ntest. 20 IN SOA ns.test. root.test. 1 2 3 4 5")})
	reverse, _ := mdns.ReverseAddr("64:ff9b::192.0.2.33")
	r.exchange(new(mdns.Msg).SetQuestion(reverse, mdns.TypePTR), v6)
	got, parked := r.exchange(new(mdns.Msg).SetQuestion("four.test.", mdns.TypeAAAA), v6)
	if want := "NOERROR AAAA 20 64:ff9b::c000:221 AAAA 20 64:ff9b::c000:222"; got != want || !parked {
		t.Errorf("four.test. AAAA: got %s, parked %v; want %s, parked", got, parked, want)
	}
	const series = `coredns_dns64_requests_translated_total{server="dns://:53"}`
	if got := chaintest.Metric(r.block.Metrics, series); got != "1" {
		t.Errorf("%s: got %q, want 1", series, got)
	}
}

// Answers to IPv4 clients and to validating clients are not translated.
func TestNotTranslated(t *testing.T) {
	query := func() *mdns.Msg { return new(mdns.Msg).SetQuestion("four.test.", mdns.TypeAAAA) }
	r := start(t, "dns64", &backend{t: t, records: records(t, zone)})
	if got, parked := r.exchange(query(), v4); got != "NOERROR" || parked {
		t.Errorf("IPv4 client: got %s, parked %v; want NOERROR without records, not parked", got, parked)
	}
	validating := query().SetEdns0(1232, true)
	validating.CheckingDisabled = true
	if got, parked := r.exchange(validating, v6); got != "NOERROR" || parked {
		t.Errorf("DO and CD: got %s, parked %v; want NOERROR without records, not parked", got, parked)
	}
	if got, _ := r.exchange(query().SetEdns0(1232, true), v6); !strings.Contains(got, "64:ff9b::") {
		t.Errorf("DO without CD: got %s, want translated addresses", got)
	}
	r = start(t, "dns64 {\n allow_ipv4\n}", &backend{t: t, records: records(t, zone)})
	if got, _ := r.exchange(query(), v4); !strings.Contains(got, "64:ff9b::") {
		t.Errorf("IPv4 client with allow_ipv4: got %s, want translated addresses", got)
	}
}

// Queries of other types allocate nothing.
func TestAllocations(t *testing.T) {
	r := start(t, "dns64", &backend{t: t})
	q, lent := dns.NewQuery(nil), make([]byte, 4096)
	name, _ := wire.ParseName("four.test")
	packet := wire.AppendRequest(nil, 1, wire.FlagRD, []byte(name), wire.TypeTXT)
	h := &DNS64{prefix: netip.MustParsePrefix("64:ff9b::/96")}
	q.Reset(packet, dns.UDP, time.Now())
	q.Peer = netip.MustParseAddrPort(v6)
	r.Port.Serve(q, lent)
	if n := testing.AllocsPerRun(100, func() {
		if h.ServeDNS(q) != dns.Next {
			t.Error("TXT query: got another verdict than Next")
		}
	}); n != 0 {
		t.Errorf("TXT query: got %v allocations, want 0", n)
	}
}
