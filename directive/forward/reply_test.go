package forward

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// packReply packs a reply with these records; "--" begins the next section.
// question is the question section of the query.
func packReply(t testing.TB, name string, qtype uint16, records ...string) (packet, question []byte) {
	t.Helper()
	q := query(name, qtype)
	m := new(mdns.Msg).SetReply(q)
	m.Compress = true
	sections := []*[]mdns.RR{&m.Answer, &m.Ns, &m.Extra}
	for _, text := range records {
		if text == "--" {
			sections = sections[1:]
			continue
		}
		*sections[0] = append(*sections[0], rr(text))
	}
	return pack(m), pack(q)[wire.HeaderLen:]
}

// replyMessage returns the message that a client would get.
func replyMessage(r *reply, question []byte) []byte {
	var a wire.Answer
	a.Reset(nil, question)
	a.Append(wire.Answers, r.records, 0)
	wire.PutHeader(a.Buf, 1, wire.FlagQR, 1, r.count, 0)
	return a.Buf
}

// droppedRecords returns the records that the parser drops.
func droppedRecords(t *testing.T, packet, question []byte, do bool) (left []string, why fault) {
	t.Helper()
	var all, have mdns.Msg
	if err := all.Unpack(packet); err != nil {
		t.Fatal(err)
	}
	r, why := new(parser).parse(packet, question, do)
	if why != valid {
		return nil, why
	}
	if err := have.Unpack(replyMessage(r, question)); err != nil {
		t.Fatal(err)
	}
	kept := slices.Concat(have.Answer, have.Ns, have.Extra)
	for _, record := range slices.Concat(all.Answer, all.Ns, all.Extra) {
		if !slices.ContainsFunc(kept, func(k mdns.RR) bool { return strings.EqualFold(k.String(), record.String()) }) {
			left = append(left, record.Header().Name+mdns.TypeToString[record.Header().Rrtype])
		}
	}
	if len(left) != r.dropped {
		t.Errorf("got %d dropped records, want %d: %v", r.dropped, len(left), left)
	}
	return left, valid
}

const (
	sig   = "RRSIG A 8 2 60 20300101000000 20200101000000 1 example. AAAA"
	nsec  = "60 IN NSEC z.example. A RRSIG NSEC"
	nsec3 = "60 IN NSEC3 1 0 1 AABB VNK9OOAVKBP5UKJVJI2IKSURDLSKBJSK A RRSIG"
)

// See CVE-2025-11411, CVE-2026-42960 and CVE-2026-50251 in docs/reference/advisories.md.
func TestSelectRecords(t *testing.T) {
	cases := map[string]struct {
		name    string
		qtype   uint16
		do      bool
		records []string
		left    string
	}{
		"an address":       {"a.example.", mdns.TypeA, false, []string{"a.example. 60 IN A 192.0.2.1", "A.EXAMPLE. 60 IN A 192.0.2.2"}, ""},
		"another's":        {"a.example.", mdns.TypeA, false, []string{"a.example. 60 IN A 192.0.2.1", "b.example. 60 IN A 192.0.2.2"}, "b.example.A"},
		"another type":     {"a.example.", mdns.TypeA, false, []string{"a.example. 60 IN A 192.0.2.1", "a.example. 60 IN AAAA ::1"}, "a.example.AAAA"},
		"another class":    {"a.example.", mdns.TypeA, false, []string{"a.example. 60 IN A 192.0.2.1", "a.example. 60 CH A 192.0.2.1"}, "a.example.A"},
		"ANY takes all":    {"a.example.", mdns.TypeANY, false, []string{"a.example. 60 IN A 192.0.2.1", "a.example. 60 IN AAAA ::1", "b.example. 60 IN A 192.0.2.1"}, "b.example.A"},
		"CNAMEs":           {"a.example.", mdns.TypeA, false, []string{"c.test. 60 IN A 192.0.2.1", "b.test. 60 IN CNAME c.test.", "a.example. 60 IN CNAME b.test.", "d.test. 60 IN CNAME a.example."}, "d.test.CNAME"},
		"CAA behind one":   {"a.example.", mdns.TypeCAA, false, []string{"a.example. 60 IN CNAME b.test.", "b.test. 60 IN CAA 0 issue \"ca.test\"", "b.test. 60 IN A 192.0.2.1"}, "b.test.A"},
		"a CNAME alone":    {"a.example.", mdns.TypeCNAME, false, []string{"a.example. 60 IN CNAME b.test.", "b.test. 60 IN A 192.0.2.1", "b.test. 60 IN CNAME c.test."}, "b.test.A b.test.CNAME"},
		"a DNAME":          {"x.a.example.", mdns.TypeA, false, []string{"a.example. 60 IN DNAME b.test.", "x.a.example. 60 IN CNAME x.b.test.", "x.b.test. 60 IN A 192.0.2.1", "c.example. 60 IN DNAME d.test."}, "c.example.DNAME"},
		"a DNAME's owner":  {"a.example.", mdns.TypeA, false, []string{"a.example. 60 IN A 192.0.2.1", "a.example. 60 IN DNAME b.test."}, "a.example.DNAME"},
		"signatures":       {"a.example.", mdns.TypeA, true, []string{"a.example. 60 IN A 192.0.2.1", "a.example. 60 IN " + sig, "b.example. 60 IN " + sig}, "b.example.RRSIG"},
		"without DO":       {"a.example.", mdns.TypeA, false, []string{"a.example. 60 IN A 192.0.2.1", "a.example. 60 IN " + sig}, "a.example.RRSIG"},
		"queried type":     {"a.example.", mdns.TypeRRSIG, false, []string{"a.example. 60 IN " + sig}, ""},
		"no such name":     {"a.b.example.", mdns.TypeA, false, []string{"--", "example. 60 IN SOA ns. host. 1 2 3 4 5"}, ""},
		"another's SOA":    {"a.b.example.", mdns.TypeA, false, []string{"--", "c.example. 60 IN SOA ns. host. 1 2 3 4 5", "a.b.example. 60 IN TXT x"}, "c.example.SOA a.b.example.TXT"},
		"SOA behind CNAME": {"a.example.", mdns.TypeA, false, []string{"a.example. 60 IN CNAME b.test.", "--", "test. 60 IN SOA ns. host. 1 2 3 4 5"}, ""},
		"proofs": {"b.example.", mdns.TypeA, true, []string{"--", "example. 60 IN SOA ns. host. 1 2 3 4 5", "a.example. " + nsec, "a.example. 60 IN " + sig,
			"0P9MHAVEQVM6T7VBL5LOP2U3T2RP3TOM.example. " + nsec3, "a.test. " + nsec}, "a.test.NSEC"},
		"proofs without DO": {"b.example.", mdns.TypeA, false, []string{"--", "example. 60 IN SOA ns. host. 1 2 3 4 5", "a.example. " + nsec}, "a.example.NSEC"},
		"a wildcard's proof": {"b.example.", mdns.TypeA, true, []string{"b.example. 60 IN A 192.0.2.1", "b.example. 60 IN " + sig, "--", "a.example. " + nsec, "a.test. " + nsec},
			"a.test.NSEC"},
		"a referral": {"a.b.example.", mdns.TypeA, true, []string{"--", "b.example. 60 IN NS ns.b.example.", "b.example. 60 IN DS 1 8 9 AA", "--", "ns.b.example. 60 IN A 192.0.2.53", "ns.example. 60 IN A 192.0.2.54"},
			"ns.example.A"},
		"mail": {"example.", mdns.TypeMX, false, []string{"example. 60 IN MX 1 Mail.test.", "--", "--", "mail.TEST. 60 IN A 192.0.2.1", "mail.test. 60 IN AAAA ::1", "mail.test. 60 IN TXT x", "www.test. 60 IN A 192.0.2.2"},
			"mail.test.TXT www.test.A"},
		"services": {"_a._tcp.example.", mdns.TypeSRV, false, []string{"_a._tcp.example. 60 IN SRV 1 2 3 a.test.", "--", "--", "a.test. 60 IN A 192.0.2.1", "b.test. 60 IN A 192.0.2.1"}, "b.test.A"},
		"HTTPS":    {"example.", mdns.TypeHTTPS, false, []string{"example. 60 IN HTTPS 1 . alpn=h2", "--", "--", "example. 60 IN A 192.0.2.1", "b.test. 60 IN A 192.0.2.1"}, "b.test.A"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			packet, question := packReply(t, c.name, c.qtype, c.records...)
			left, why := droppedRecords(t, packet, question, c.do)
			if got := strings.Join(left, " "); why != valid || got != c.left {
				t.Errorf("%s: left out %q, want %q", why, got, c.left)
			}
		})
	}
	packet, question := packReply(t, "a.example.", mdns.TypeA, "b.example. 60 IN A 192.0.2.2")
	if _, why := droppedRecords(t, packet, question, false); why != unrelated {
		t.Errorf("reply with unrelated records: got %q, want %q", why, unrelated)
	}
	packet, question = packReply(t, "a.example.", mdns.TypeAAAA, "a.example. 60 IN A 192.0.2.2")
	r, why := new(parser).parse(packet, question, false)
	if why != valid || !r.otherType || len(r.records) > 0 || r.dropped != 1 {
		t.Errorf("reply with records of another type: got %q, %+v, want a valid NODATA with one dropped record", why, r)
	}
}

// A reply of the largest size whose names all are compressed is malformed if it would
// exceed the limit without compression.
func TestParseCostBounded(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 60)+".", 4)
	m := new(mdns.Msg).SetReply(query(long, mdns.TypeNS))
	m.Compress = true
	for i := range 3000 {
		m.Answer = append(m.Answer, rr(fmt.Sprintf("%s 1 IN NS n%d.%s", long, i, long)))
	}
	packet := pack(m)
	if len(packet) > wire.MaxMessage {
		t.Fatalf("got a packet of %d bytes, want at most %d", len(packet), wire.MaxMessage)
	}
	if r, why := new(parser).parse(packet, pack(query(long, mdns.TypeNS))[wire.HeaderLen:], false); why != malformed {
		t.Errorf("got %q and %d bytes of records, want %q", why, len(r.records), malformed)
	}
	var records []string
	for i := range 2000 {
		records = append(records, fmt.Sprintf("n%d. 1 IN CNAME n%d.", i+1, i))
	}
	packet, question := packReply(t, "n2000.", mdns.TypeA, records...)
	r, why := new(parser).parse(packet, question, false)
	if why != valid || r.code != wire.ServFail || r.count[wire.Answers] != 0 {
		t.Errorf("2000 CNAME records: got %q, %v with %d records, want SERVFAIL without", why, r.code, r.count[wire.Answers])
	}
}

// A CNAME loop, and a chain that is too long, become SERVFAIL.
func TestBrokenCNAMEChains(t *testing.T) {
	chain := func(n int) (records []string) {
		for i := range n {
			records = append(records, fmt.Sprintf("n%d. 1 IN CNAME n%d.", i, i+1))
		}
		return append(records, fmt.Sprintf("n%d. 1 IN A 192.0.2.1", n))
	}
	var self []string
	for i := range 3000 {
		self = append(self, fmt.Sprintf("n0. %d IN CNAME n0.", i))
	}
	for _, test := range []struct {
		name    string
		records []string
		qtype   uint16
		broken  bool
	}{
		{"longest chain", chain(maxNames - 1), mdns.TypeA, false},
		{"chain too long", chain(maxNames), mdns.TypeA, true},
		{"self-reference", []string{"n0. 1 IN CNAME n0."}, mdns.TypeA, true},
		{"3000 self-references", self, mdns.TypeA, true},
		{"loop of two", []string{"n0. 60 IN CNAME n1.", "n1. 60 IN CNAME n0."}, mdns.TypeA, true},
		{"loop of three", []string{"n0. 1 IN CNAME n1.", "n1. 1 IN CNAME n2.", "n2. 1 IN CNAME N0."}, mdns.TypeA, true},
		{"loop that the name leads to", []string{"n0. 1 IN CNAME n1.", "n1. 1 IN CNAME n2.", "n2. 1 IN CNAME n1."}, mdns.TypeA, true},
		{"loop with an address", []string{"n0. 1 IN CNAME n1.", "n1. 1 IN CNAME n0.", "n1. 1 IN A 192.0.2.1"}, mdns.TypeA, true},
		{"loop of another name", []string{"n0. 1 IN A 192.0.2.1", "n1. 1 IN CNAME n1."}, mdns.TypeA, false},
		{"query for CNAME", []string{"n0. 1 IN CNAME n0."}, mdns.TypeCNAME, false},
	} {
		packet, question := packReply(t, "n0.", test.qtype, test.records...)
		r, why := new(parser).parse(packet, question, false)
		switch {
		case why != valid:
			t.Errorf("%s: got the discard reason %q, want none", test.name, why)
		case test.broken && (r.code != wire.ServFail || r.count[wire.Answers] != 0):
			t.Errorf("%s: got %v with %d answers, want SERVFAIL without", test.name, r.code, r.count[wire.Answers])
		case !test.broken && (r.code != wire.NoError || r.count[wire.Answers] == 0):
			t.Errorf("%s: got %v with %d answers, want NOERROR with answers", test.name, r.code, r.count[wire.Answers])
		}
	}
}

// Of records that differ only in TTL and case, the first is used.
func TestDuplicateRecordsDropped(t *testing.T) {
	packet, question := packReply(t, "a.example.", mdns.TypeA,
		"a.example. 60 IN CNAME b.example.", "A.example. 60 IN CNAME B.example.", "a.example. 30 IN CNAME b.example.",
		"b.example. 60 IN A 192.0.2.1", "b.example. 60 IN A 192.0.2.2", "B.example. 60 IN A 192.0.2.1")
	r, why := new(parser).parse(packet, question, false)
	if why != valid || r.count[wire.Answers] != 3 || r.dropped != 3 {
		t.Errorf("6 records, 3 of them duplicates: got %q, %d records kept and %d dropped, want 3 and 3", why, r.count[wire.Answers], r.dropped)
	}
}

// TTLs with the highest bit are zero (RFC 2181 §8).
func TestTTLAboveMaximum(t *testing.T) {
	packet, question := packReply(t, "a.example.", mdns.TypeA, "a.example. 4294967295 IN A 192.0.2.1", "a.example. 2147483647 IN A 192.0.2.2")
	r, _ := new(parser).parse(packet, question, false)
	var m mdns.Msg
	if err := m.Unpack(replyMessage(r, question)); err != nil || m.Answer[0].Header().Ttl != 0 || m.Answer[1].Header().Ttl != 1<<31-1 {
		t.Errorf("got error %v and\n%v\nwant the TTLs 0 and 2147483647", err, &m)
	}
}

// FuzzReply parses arbitrary packets: the result has only well-formed records that
// belong to the query.
func FuzzReply(f *testing.F) {
	for _, c := range [][]string{
		{"a.example. 60 IN A 192.0.2.1"},
		{"a.example. 60 IN CNAME b.test.", "b.test. 60 IN A 192.0.2.1", "--", "test. 60 IN NS ns.test.", "--", "ns.test. 60 IN A 192.0.2.2"},
		{"example. 60 IN DNAME test.", "a.example. 60 IN CNAME a.test.", "a.test. 60 IN A 192.0.2.1"},
		{"--", "example. 60 IN SOA ns. host. 1 2 3 4 5", "b.example. " + nsec, "b.example. 60 IN " + sig},
		{"a.example. 60 IN MX 1 mail.example.", "--", "--", "mail.example. 60 IN AAAA ::1"},
		{"a.example. 60 IN SRV 1 2 3 mail.example.", "a.example. 60 IN HTTPS 1 . alpn=h2"},
	} {
		for _, do := range []bool{false, true} {
			packet, _ := packReply(f, "a.example.", mdns.TypeA, c...)
			f.Add(packet, uint16(mdns.TypeA), do)
			f.Add(packet, uint16(mdns.TypeANY), do)
		}
	}
	p := new(parser)
	f.Fuzz(func(t *testing.T, packet []byte, qtype uint16, do bool) {
		question := pack(query("a.example.", qtype))[wire.HeaderLen:]
		if len(packet) < wire.HeaderLen || len(packet) > wire.MaxMessage || !echoesQuestion(packet, question) {
			return
		}
		r, why := p.parse(packet, question, do)
		if why != valid {
			return
		}
		checkReply(t, r, question)
		// The parser's memory from one reply to the next changes nothing.
		again, _ := new(parser).parse(packet, question, do)
		if !bytes.Equal(again.records, r.records) || again.count != r.count {
			t.Errorf("%x: got records %x from a used parser, want %x as from a new one", packet, r.records, again.records)
		}
		var theirs, ours mdns.Msg
		if theirs.Unpack(packet) == nil && !r.truncated {
			if err := ours.Unpack(replyMessage(r, question)); err != nil {
				t.Errorf("%x: the oracle reads the packet, and not what became of it: %v", packet, err)
			}
		}
	})
}

// checkReply finds the names that the answer leads to with another algorithm,
// and wants each record to be of one of them.
func checkReply(t *testing.T, r *reply, question []byte) {
	var a wire.Answer
	a.Reset(nil, question)
	a.Append(wire.Answers, r.records, 0)
	a.Count = r.count
	name := func(off int) string {
		var b wire.Answer
		b.Reset(nil, nil)
		rec, _ := wire.ReadRecord(a.Buf, off)
		// A record without RDATA but for its owner.
		head := append(bytes.Clone(a.Buf[off:rec.Head]), 0, 16, 0, 1, 0, 0, 0, 0, 0, 0)
		msg := append(bytes.Clone(a.Buf[:a.RecordsOffset()]), head...)
		if _, err := b.AppendRecord(wire.Answers, msg, a.RecordsOffset()); err != nil {
			t.Fatal(err)
		}
		return string(wire.Lower(string(b.Buf[wire.HeaderLen : len(b.Buf)-10])))
	}
	type record struct {
		s     wire.Section
		t     wire.Type
		owner string
		rdata string
	}
	var all []record
	off := a.RecordsOffset()
	a.Walk(func(s wire.Section, rec wire.Record) bool {
		off = rec.Next
		all = append(all, record{s, rec.Type, name(rec.Owner), string(a.Buf[rec.RData:rec.Next])})
		return true
	})
	if off != len(a.Buf) {
		t.Fatalf("got records up to byte %d, want %d", off, len(a.Buf))
	}
	first := string(wire.Lower(string(question[:len(question)-4])))
	reached := map[string]bool{first: true}
	for range all {
		for _, rec := range all {
			if rec.s == wire.Answers && rec.t == wire.TypeCNAME && reached[rec.owner] {
				reached[string(wire.Lower(rec.rdata))] = true
			}
		}
	}
	below := func(zone string) bool {
		for n := range reached {
			if wire.Name(n).Within(wire.Name(zone)) {
				return true
			}
		}
		return false
	}
	for _, rec := range all {
		ok := false
		switch rec.s {
		case wire.Answers:
			ok = reached[rec.owner] || (rec.t == wire.TypeDNAME || rec.t == wire.TypeRRSIG) && below(rec.owner)
		case wire.Authority:
			ok = below(rec.owner) || rec.t == wire.TypeNSEC || rec.t == wire.TypeNSEC3 || rec.t == wire.TypeRRSIG
		case wire.Additional:
			for _, other := range all {
				ok = ok || strings.Contains(string(wire.Lower(other.rdata)), rec.owner) || other.owner == rec.owner && other.s != wire.Additional
			}
		}
		if !ok {
			t.Errorf("got a record of type %s at %q in section %d, want none", rec.t, wire.Name(rec.owner), rec.s)
		}
	}
}

func TestEchoesQuestion(t *testing.T) {
	packet, question := packReply(t, "A.Example.", mdns.TypeA)
	if !echoesQuestion(packet, question) {
		t.Error("same question: got false, want true")
	}
	lowered, _ := packReply(t, "a.example.", mdns.TypeA)
	if !echoesQuestion(lowered, question) {
		t.Error("question in lower case: got false, want true")
	}
	if echoesQuestion(packet, lowered[wire.HeaderLen:]) {
		t.Error("question in another spelling: got true, want false")
	}
	if echoesQuestion(packet[:len(packet)-1], question) {
		t.Error("truncated question: got true, want false")
	}
}

func BenchmarkReply(b *testing.B) {
	packet, question := packReply(b, "www.example.", mdns.TypeA, "www.example. 60 IN CNAME web.example.", "web.example. 60 IN A 192.0.2.1", "web.example. 60 IN A 192.0.2.2")
	p := new(parser)
	b.ReportAllocs()
	for b.Loop() {
		if _, why := p.parse(packet, question, false); why != valid {
			b.Fatal(why)
		}
	}
}
