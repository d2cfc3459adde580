package wire

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/race"
)

// compressed compresses a and returns the message. It checks that the records are
// unchanged and the size has not grown.
func compressed(t testing.TB, a *Answer) []byte {
	t.Helper()
	before := bytes.Clone(sealed(a))
	want := zone(unpack(t, before))
	old := a.Buf
	a.Compress(nil, MaxMessage)
	if !bytes.Equal(old, before) {
		t.Errorf("the old memory: got %x, want %x", old, before)
	}
	if len(a.Buf) > len(before) {
		t.Errorf("compressing %d bytes: got %d bytes, want at most as many", len(before), len(a.Buf))
	}
	after := sealed(a)
	if got := zone(unpack(t, after)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	return after
}

func TestCompress(t *testing.T) {
	for _, tt := range []struct {
		what     string
		sections [][]string
	}{
		{"nothing", nil},
		{"owner is the question", [][]string{repeat(3, "web.shop.svc.cluster.local. 5 IN A 10.0.0.1")}},
		{"owner is its parent", [][]string{{"cluster.local. 5 IN NS ns.dns.cluster.local."}}},
		{"owner is another name", [][]string{{"www.example.org. 5 IN A 10.0.0.1", "example.org. 5 IN A 10.0.0.1"}}},
		{"root", [][]string{{". 5 IN NS ."}}},
		{"CNAMEs", [][]string{{"web.shop.svc.cluster.local. 5 IN CNAME www.example.org.", "www.example.org. 5 IN CNAME x.example.org."}}},
		{"SOA", [][]string{{}, {"cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 2 3 4 5"}}},
		{"PTR", [][]string{{"1.0.0.10.in-addr.arpa. 5 IN PTR web.shop.svc.cluster.local."}}},
		{"MX", [][]string{{"web.shop.svc.cluster.local. 5 IN MX 10 mx.cluster.local."}}},
		{"SRV and its addresses", [][]string{
			{"web.shop.svc.cluster.local. 5 IN SRV 0 5 80 a.web.shop.svc.cluster.local.", "web.shop.svc.cluster.local. 5 IN SRV 0 5 80 b.c."},
			{}, {"a.web.shop.svc.cluster.local. 5 IN A 10.0.0.1", "b.c. 5 IN A 10.0.0.1", "x.c. 5 IN A 10.0.0.1"}}},
		{"escapes", [][]string{{`a\.b.cluster.local. 5 IN NS b.cluster.local.`, `\192\012.cluster.local. 5 IN NS a\.b.cluster.local.`}}},
		{"127 labels", [][]string{repeat(2, strings.Repeat("a.", 127)+" 5 IN A 10.0.0.1")}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			a := answerOf(t, tt.sections...)
			out := compressed(t, a)
			// The oracle uses the same suffixes.
			if theirs := message(t, true, "web.shop.svc.cluster.local.", tt.sections...); len(out) > len(theirs) {
				t.Errorf("got %d bytes %q, want %d bytes as miekg/dns: %q", len(out), out, len(theirs), theirs)
			}
			// A second Compress changes nothing.
			if again := compressed(t, a); !bytes.Equal(again, out) {
				t.Errorf("second Compress:\n got %q\nwant %q", again, out)
			}
		})
	}
}

// Compress does not move a message in which all owners are pointers and no RDATA
// has names, since it cannot become shorter.
func TestCompressNothingToCompress(t *testing.T) {
	parent := QuestionPointer(len("\x03web\x04shop"))
	addr := netip.MustParseAddr("10.0.0.2")
	txt := append(AppendRecordHeader(nil, OwnerIsQuestion, TypeTXT, 5, 2), "\x01x"...)
	ns := append(AppendRecordHeader(nil, OwnerIsQuestion, TypeNS, 5, 3), "\x01x\x00"...)
	for _, tt := range []struct {
		what  string
		last  []byte
		stays bool
	}{
		{"its parent's address", AppendAddress(nil, parent[:], 5, addr), true},
		{"an IPv6 address", AppendAddress(nil, OwnerIsQuestion, 5, netip.MustParseAddr("2001:db8::1")), true},
		{"a text", txt, true},
		{"a name in RDATA", ns, false},
		{"an owner written out", AppendAddress(nil, "\x01x\x00", 5, addr), false},
	} {
		a := new(Answer)
		a.Reset(nil, question(t, "web.shop.svc.cluster.local."))
		a.Append(Answers, AppendAddress(nil, OwnerIsQuestion, 5, addr), 1)
		a.Append(Answers, tt.last, 1)
		before := &a.Buf[0]
		if compressed(t, a); (&a.Buf[0] == before) != tt.stays {
			t.Errorf("%s: message not moved: got %v, want %v", tt.what, !tt.stays, tt.stays)
		}
	}
}

// Records of every type are unchanged. The oracle's message is a little smaller,
// since it compresses names in the RDATA of rare types.
func TestCompressEveryType(t *testing.T) {
	a := answerOf(t, everyType(), everyType(), everyType())
	compressed(t, a)
}

// The exact bytes of one message.
func TestCompressBytes(t *testing.T) {
	a := imported(t, message(t, false, "b.c.", []string{"b.c. 1 IN CNAME a.b.c.", "a.b.c. 1 IN MX 5 x.c."}))
	a.Compress(nil, MaxMessage)
	const want = "\x01b\x01c\x00\x00\x01\x00\x01" + // at 12; c. at 14
		"\xC0\x0C\x00\x05\x00\x01\x00\x00\x00\x01\x00\x04" + "\x01a\xC0\x0C" + // a.b.c. at 33
		"\xC0\x21\x00\x0F\x00\x01\x00\x00\x00\x01\x00\x06" + "\x00\x05\x01x\xC0\x0E"
	if got := string(a.Buf[HeaderLen:]); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// An answer from this server's own data has pointers into the question.
func TestCompressPointersIntoQuestion(t *testing.T) {
	q := question(t, "Web.shop.svc.cluster.local.")
	addr := netip.MustParseAddr("10.0.0.1")
	zoneAt := QuestionPointer(len("\x03Web\x04shop\x03svc")) // cluster.local.
	rootAt := QuestionPointer(len(q) - 5)
	var a Answer
	a.Reset(nil, q)
	a.Append(Answers, AppendAddress(nil, OwnerIsQuestion, 5, addr), 1)
	a.Append(Answers, AppendAddress(nil, "\x01x"+OwnerIsQuestion, 5, addr), 1)
	a.Append(Answers, AppendAddress(nil, "\x01y\x01x"+OwnerIsQuestion, 5, addr), 1)
	a.Append(Answers, AppendAddress(nil, rootAt[:], 5, addr), 1)
	a.Append(Answers, AppendAddress(nil, "\x01z"+string(rootAt[:]), 5, addr), 1)
	a.Append(Answers, append(AppendRecordHeader(nil, zoneAt[:], TypeCNAME, 5, 2), OwnerIsQuestion...), 1)
	a.Append(Authority, append(AppendRecordHeader(nil, zoneAt[:], TypeNS, 5, 5), "\x02ns"+string(zoneAt[:])...), 1)
	a.Append(Additional, AppendAddress(nil, "\x02ns"+string(zoneAt[:]), 5, addr), 1)
	out := compressed(t, &a)
	want := "answers\n" +
		"Web.shop.svc.cluster.local.	5	IN	A	10.0.0.1\n" +
		"x.Web.shop.svc.cluster.local.	5	IN	A	10.0.0.1\n" +
		"y.x.Web.shop.svc.cluster.local.	5	IN	A	10.0.0.1\n" +
		".	5	IN	A	10.0.0.1\n" +
		"z.	5	IN	A	10.0.0.1\n" +
		"cluster.local.	5	IN	CNAME	Web.shop.svc.cluster.local.\n" +
		"authority\ncluster.local.	5	IN	NS	ns.cluster.local.\n" +
		"additional\nns.cluster.local.	5	IN	A	10.0.0.1\n"
	if got := zone(unpack(t, out)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// A name that differs from an earlier one in letter case is not replaced by a
// pointer.
func TestCompressLetterCase(t *testing.T) {
	a := answerOf(t, []string{
		"WEB.shop.svc.cluster.local. 5 IN CNAME web.SHOP.svc.cluster.local.",
		"Web.Shop.Svc.Cluster.Local. 5 IN CNAME web.shop.svc.cluster.LOCAL.",
		"Web.Shop.Svc.Cluster.Local. 5 IN A 10.0.0.1",
	})
	before := len(a.Buf)
	if out := compressed(t, a); len(out) >= before {
		t.Errorf("compressed %d bytes to %d, want common suffixes as pointers", before, len(out))
	}
}

// Compress does not change names in the RDATA of SRV records (RFC 2782) and of
// other types that RFC 1035 does not define. Later owners may point to them.
func TestCompressRDataOfNewerTypes(t *testing.T) {
	for _, s := range []string{
		"web.shop.svc.cluster.local. 5 IN SRV 0 5 80 web.shop.svc.cluster.local.",
		"web.shop.svc.cluster.local. 5 IN DNAME web.shop.svc.cluster.local.",
		"web.shop.svc.cluster.local. 5 IN RP web.shop.svc.cluster.local. web.shop.svc.cluster.local.",
		"web.shop.svc.cluster.local. 5 IN AFSDB 1 web.shop.svc.cluster.local.",
		"web.shop.svc.cluster.local. 5 IN KX 1 web.shop.svc.cluster.local.",
		`web.shop.svc.cluster.local. 5 IN NAPTR 1 1 "" "" "" web.shop.svc.cluster.local.`,
		"web.shop.svc.cluster.local. 5 IN HTTPS 1 web.shop.svc.cluster.local.",
	} {
		a := answerOf(t, []string{s}, nil, []string{"web.shop.svc.cluster.local. 5 IN A 10.0.0.1"})
		rec, _ := ReadRecord(a.Buf, a.RecordsOffset())
		rdata := bytes.Clone(a.Buf[rec.RData:rec.Next])
		compressed(t, a)
		rec, _ = ReadRecord(a.Buf, a.RecordsOffset())
		if got := a.Buf[rec.RData:rec.Next]; !bytes.Equal(got, rdata) {
			t.Errorf("%s: got RDATA %q, want %q", s, got, rdata)
		}
	}
}

// A pointer has fourteen bits: names after the first 16 KB can point to earlier
// suffixes, but no pointer leads to them.
func TestCompressOver16K(t *testing.T) {
	for shift := range 64 { // moves a name across the limit byte by byte
		var records []string
		records = append(records, "first.example.org. 5 IN TXT "+strings.Repeat("x", 1+shift))
		for i := range 240 {
			records = append(records, fmt.Sprintf("name%d.sub%d.example.org. 5 IN TXT %s", i, i/2, strings.Repeat("x", 70)))
		}
		records = append(records, "first.example.org. 5 IN NS last.example.org.", "last.example.org. 5 IN A 10.0.0.1")
		a := answerOf(t, records)
		compressed(t, a)
		if len(a.Buf) < 1<<14+1000 {
			t.Fatalf("the test is wrong: %d bytes", len(a.Buf))
		}
	}
}

// A pointer can lead to offset 16383, but not to 16384.
func TestCompressPointerLimit(t *testing.T) {
	for _, tt := range []struct {
		at     int
		shared bool
	}{{1<<14 - 1, true}, {1 << 14, false}} {
		var a Answer
		a.Reset(nil, question(t, "a."))
		n := tt.at - len(a.Buf) - 12
		a.Append(Answers, append(AppendRecordHeader(nil, OwnerIsQuestion, 65280, 5, n), make([]byte, n)...), 1)
		for range 2 {
			a.Append(Answers, AppendAddress(nil, "\x01b\x00", 5, netip.MustParseAddr("10.0.0.1")), 1)
		}
		before := len(a.Buf)
		compressed(t, &a)
		if shared := len(a.Buf) == before-1; shared != tt.shared {
			t.Errorf("name at %d, %d bytes: got %d bytes", tt.at, before, len(a.Buf))
		}
	}
}

// If there are more suffixes than the table holds, the first ones are used.
// See CVE-2026-44390 in docs/reference/advisories.md.
func TestCompressManySuffixes(t *testing.T) {
	for _, n := range []int{185, 190, 191, 192, 193, 194, 256, 257, 700} {
		var records []string
		for i := range n {
			records = append(records, fmt.Sprintf("n%d. 5 IN A 10.0.0.1", i))
		}
		records = append(records, records...)
		records = append(records, strings.Repeat("a.", 127)+" 5 IN NS "+strings.Repeat("b.", 127))
		records = append(records, "web.shop.svc.cluster.local. 5 IN NS x.shop.svc.cluster.local.")
		a := answerOf(t, records)
		out := compressed(t, a)
		// The table has the question's five suffixes first.
		if rec := out[len(out)-14:]; !bytes.Equal(rec[10:], []byte("\x01x\xC0\x10")) {
			t.Errorf("%d names: the last record ends with %q, want a pointer to the question", n, rec)
		}
	}
}

func TestCompressIntoSpare(t *testing.T) {
	a := answerOf(t, repeat(20, "b.svc.cluster.local. 5 IN A 10.0.0.1"))
	spare := bytes.Repeat([]byte{0xEE}, 600)
	want := zone(unpack(t, sealed(a)))
	if a.Compress(spare[:7], MaxMessage); &a.Buf[0] != &spare[0] {
		t.Error("the compressed message is not in the spare memory")
	}
	if got := zone(unpack(t, sealed(a))); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}

	// Spare memory that is too small and directly after the message.
	room := make([]byte, 0, 1000)
	a.Reset(room, question(t, "web.shop.svc.cluster.local."))
	a.Append(Answers, bytes.Repeat(AppendAddress(nil, "\x01b\x00", 5, netip.MustParseAddr("10.0.0.1")), 50), 50)
	if len(a.Buf)+100 > cap(room) || cap(room) > len(a.Buf)+200 {
		t.Fatalf("the test is wrong: the message has %d bytes", len(a.Buf))
	}
	plain := bytes.Clone(sealed(a))
	a.Compress(a.Buf[len(a.Buf):], MaxMessage)
	if got := zone(unpack(t, sealed(a))); got != zone(unpack(t, plain)) {
		t.Errorf("got\n%s", got)
	}
}

// Compress does not change a malformed message.
func TestCompressMalformed(t *testing.T) {
	q := question(t, "a.")
	head := func(owner string, typ Type, rdata string) string {
		return string(append(AppendRecordHeader(nil, owner, typ, 5, len(rdata)), rdata...))
	}
	for _, records := range []string{
		"\xFF",
		"\x40" + head("", TypeA, ""),
		head("\x05ab", TypeA, ""),
		head(OwnerIsQuestion, TypeA, "1234")[:15],
		head("\xC0\x00", TypeA, "1234"),
		head("\xFF\xFF", TypeA, "1234"),
		head("\xC0\x13", TypeA, "1234"), // to itself
		head(OwnerIsQuestion, TypeNS, ""),
		head(OwnerIsQuestion, TypeNS, "\x01b"),
		head(OwnerIsQuestion, TypeNS, "\xC0"),
		head(OwnerIsQuestion, TypeMX, "\x00"),
		head(OwnerIsQuestion, TypeSOA, "\x00"),
		head(OwnerIsQuestion, TypeNS, "\x01b") + head("\x00", TypeA, ""),
		head(OwnerIsQuestion, TypeNS, "\xC0") + head("\x00", TypeA, ""),
	} {
		var a Answer
		a.Reset(nil, q)
		a.AppendString(Answers, records, 1)
		before := bytes.Clone(a.Buf)
		spare := make([]byte, 1, 100)
		if a.Compress(spare, MaxMessage); &a.Buf[0] == &spare[0] || !bytes.Equal(a.Buf, before) {
			t.Errorf("malformed records %q: got %q, want no change", records, a.Records())
		}
	}
	var empty Answer
	empty.Reset(nil, nil)
	empty.Compress(nil, MaxMessage)
	if len(empty.Buf) != HeaderLen {
		t.Errorf("empty message: got %q, want no change", empty.Buf)
	}
}

// Compress stops at the size limit of a message, and Truncate removes the rest
// correctly.
func TestCompressLargerThanMessage(t *testing.T) {
	const n = 5000
	var a Answer
	a.Reset(nil, question(t, "a."))
	for i := range n {
		owner := fmt.Appendf(nil, "\x05h%04d", i)
		a.Append(Answers, AppendAddress(nil, append(owner, OwnerIsQuestion...), 5, netip.MustParseAddr("10.0.0.1")), 1)
	}
	a.Compress(nil, MaxMessage)
	if !a.Truncate(MaxMessage) {
		t.Errorf("%d records: Truncate returned false, want true", n)
	}
	m := unpack(t, sealed(&a))
	if want := (MaxMessage - a.RecordsOffset()) / (8 + 14); len(m.Answer) != want {
		t.Errorf("%d records: got %d after Truncate, want %d", n, len(m.Answer), want)
	}
	for i, rr := range m.Answer {
		if rr.Header().Name != fmt.Sprintf("h%04d.a.", i) || rr.Header().Rrtype != dns.TypeA {
			t.Fatalf("record %d: got %v, want it as it was added", i, rr)
		}
	}
}

// Compress up to a size, and then Truncate, has the same result as Compress of
// the whole message.
func TestCompressUpToSize(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	newAnswer := func() *Answer {
		var answers, additional []string
		for i := range 60 {
			name := fmt.Sprintf("h%02d.web.shop.svc.cluster.local.", i/2)
			answers = append(answers, "web.shop.svc.cluster.local. 5 IN NS "+name)
			additional = append(additional, fmt.Sprintf("%s 5 IN A 10.0.0.%d", name, i))
		}
		return answerOf(t, answers, []string{"shop.svc.cluster.local. 5 IN NS ns.dns.cluster.local."}, additional)
	}
	whole := newAnswer()
	whole.Compress(nil, MaxMessage)
	step := 1 + 10 - race.Fewer(10)
	for size := len(whole.Buf) + 1; size > 0; size -= step {
		long, short := newAnswer(), newAnswer()
		long.Compress(nil, MaxMessage)
		short.Compress(nil, size)
		lost, want := short.Truncate(size), long.Truncate(size)
		if lost != want || short.Count != long.Count || !bytes.Equal(short.Buf, long.Buf) {
			t.Fatalf("Truncate(%d): lost %v, counts %v, %d bytes; want %v, %v, %d", size, lost, short.Count, len(short.Buf), want, long.Count, len(long.Buf))
		}
	}
}
