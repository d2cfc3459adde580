package wire

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestAnswerResetAppendClear(t *testing.T) {
	q := question(t, "Web.shop.svc.cluster.local.")
	lent := bytes.Repeat([]byte{0xEE}, 512) // the old content must not show
	var a Answer
	a.Reset(lent, q)
	if !a.Empty() || a.RecordsOffset() != HeaderLen+len(q) || &a.Buf[0] != &lent[0] {
		t.Fatalf("after Reset: got %+v, want an empty answer in the lent memory", a)
	}
	if m := unpack(t, sealed(&a)); len(m.Question) != 1 || m.Question[0].Name != "Web.shop.svc.cluster.local." {
		t.Fatalf("after Reset: got %v, want the question Web.shop.svc.cluster.local.", m)
	}

	v4, v6 := netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::10")
	a.Append(Answers, AppendAddress(nil, OwnerIsQuestion, 30, v4), 1)
	a.AppendString(Answers, string(AppendAddress(nil, OwnerIsQuestion, 30, v6)), 1)
	up := QuestionPointer(len("\x03Web")) // shop.svc.cluster.local.
	head := AppendRecordHeader(nil, up[:], TypeTXT, 1<<31-1, 4)
	a.Append(Additional, append(head, "\x03abc"...), 1)
	if a.Empty() || a.Count != [3]uint16{2, 0, 1} || len(a.Records()) != len(a.Buf)-a.RecordsOffset() {
		t.Fatalf("after Append: got %+v, want 2 answers and 1 additional record", a)
	}
	want := `answers
Web.shop.svc.cluster.local.	30	IN	A	10.96.0.10
Web.shop.svc.cluster.local.	30	IN	AAAA	fd00::10
authority
additional
shop.svc.cluster.local.	2147483647	IN	TXT	"abc"
`
	if got := zone(unpack(t, sealed(&a))); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}

	a.Clear()
	if !a.Empty() || a.Count != [3]uint16{} || zone(unpack(t, sealed(&a))) != "answers\nauthority\nadditional\n" {
		t.Errorf("after Clear: got %+v, want an empty answer", a)
	}

	// The memory is too small: Append leaves it and does not write behind it.
	room := make([]byte, 64)
	a.Reset(room[:0:40], q)
	a.Append(Answers, AppendAddress(nil, OwnerIsQuestion, 30, v4), 1)
	if !bytes.Equal(room[40:], make([]byte, 24)) {
		t.Errorf("behind the lent memory: got %x, want zeros", room[40:])
	}
	if len(unpack(t, sealed(&a)).Answer) != 1 {
		t.Errorf("the record is missing in %x", a.Buf)
	}

	// The question of the request could not be read.
	a.Reset(room, nil)
	if a.RecordsOffset() != HeaderLen || len(a.Buf) != HeaderLen {
		t.Errorf("without a question: got %+v, want only a header", a)
	}
}

func TestPutHeader(t *testing.T) {
	msg := make([]byte, 12)
	PutHeader(msg, 0x1234, FlagQR|FlagAA|FlagTC|FlagRD|FlagRA|FlagAD|FlagCD|3, 1, [3]uint16{2, 3, 0x405}, 1)
	if want := []byte("\x12\x34\x87\xB3\x00\x01\x00\x02\x00\x03\x04\x06"); !bytes.Equal(msg, want) {
		t.Errorf("got %x, want %x", msg, want)
	}
}

// everyType returns records of all types whose names may be compressed, and of
// some whose names may not.
func everyType() []string {
	return []string{
		"www.example.org. 300 IN A 192.0.2.1",
		"www.example.org. 300 IN AAAA 2001:db8::1",
		"example.org. 300 IN NS ns1.example.org.",
		"example.org. 300 IN MD md.example.org.",
		"example.org. 300 IN MF mf.example.org.",
		"alias.example.org. 300 IN CNAME www.example.org.",
		"example.org. 300 IN SOA ns1.example.org. hostmaster.example.org. 1 2 3 4 5",
		"example.org. 300 IN MB mb.example.org.",
		"example.org. 300 IN MG mg.example.org.",
		"example.org. 300 IN MR mr.example.org.",
		"1.2.0.192.in-addr.arpa. 300 IN PTR www.example.org.",
		`www.example.org. 300 IN HINFO "x" "y"`,
		"example.org. 300 IN MINFO r.example.org. e.example.org.",
		"example.org. 300 IN MX 10 mx.example.org.",
		`example.org. 300 IN TXT "one" "two"`,
		"example.org. 300 IN RP mbox.example.org. txt.example.org.",
		"example.org. 300 IN AFSDB 1 afs.example.org.",
		"example.org. 300 IN RT 10 rt.example.org.",
		"example.org. 300 IN PX 10 a.example.org. b.example.org.",
		"_http._tcp.example.org. 300 IN SRV 0 5 80 www.example.org.",
		`example.org. 300 IN NAPTR 100 50 "s" "http" "" _http._tcp.example.org.`,
		"example.org. 300 IN KX 1 kx.example.org.",
		"sub.example.org. 300 IN DNAME example.net.",
		"example.org. 300 IN SIG A 8 2 300 20300101000000 20200101000000 1 example.org. AAAA",
		"example.org. 300 IN NXT next.example.org. A NS",
		"example.org. 300 IN RRSIG A 8 2 300 20300101000000 20200101000000 1 example.org. AAAA",
		"example.org. 300 IN NSEC next.example.org. A NS",
		"example.org. 300 IN HTTPS 1 svc.example.org. alpn=h2",
		"example.org. 300 IN TYPE65280 \\# 4 0A000001",
		"example.org. 0 CH TXT \"class CH\"",
		". 300 IN NS a.root-servers.net.",
	}
}

func TestAppendRecord(t *testing.T) {
	for _, s := range everyType() {
		for _, compress := range []bool{false, true} {
			// One record in each section. With compression the names of the later
			// records point to the first.
			msg := message(t, compress, "WWW.example.org.", []string{s}, []string{s}, []string{s})
			a := imported(t, msg)
			if a.Count != [3]uint16{1, 1, 1} {
				t.Errorf("%s: got counts %v, want 1 for each section", s, a.Count)
			}
			if got, want := zone(unpack(t, sealed(a))), zone(unpack(t, msg)); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			// The names are written out, so the bytes are those of the
			// uncompressed message.
			if plain := message(t, false, "WWW.example.org.", []string{s}, []string{s}, []string{s}); !bytes.Equal(a.Records(), plain[a.RecordsOffset():]) {
				t.Errorf("%s, compressed %v:\n got %x\nwant %x", s, compress, a.Records(), plain[a.RecordsOffset():])
			}
		}
	}
}

// The oracle does not compress names in the RDATA of most types, but other
// servers do. Here they are pointers to the question's name.
func TestAppendRecordPointersInRData(t *testing.T) {
	const name = "\x01a\x00" // of the question
	for _, tt := range []struct {
		typ  Type
		in   string
		want string // "" if it is malformed
	}{
		{TypeNS, "\xC0\x0C", name},
		{TypeNS, "\x01b\xC0\x0C", "\x01b" + name},
		{TypeCNAME, "\xC0\x0C", name},
		{TypePTR, "\xC0\x0C", name},
		{TypeDNAME, "\xC0\x0C", name},
		{typeMD, "\xC0\x0C", name},
		{typeMF, "\xC0\x0C", name},
		{typeMB, "\xC0\x0C", name},
		{typeMG, "\xC0\x0C", name},
		{typeMR, "\xC0\x0C", name},
		{typeMINFO, "\xC0\x0C\xC0\x0C", name + name},
		{TypeRP, "\xC0\x0C\xC0\x0C", name + name},
		{TypeSOA, "\xC0\x0C\x01b\xC0\x0C12345678901234567890", name + "\x01b" + name + "12345678901234567890"},
		{TypeMX, "\x00\x0A\xC0\x0C", "\x00\x0A" + name},
		{TypeAFSDB, "\x00\x0A\xC0\x0C", "\x00\x0A" + name},
		{TypeKX, "\x00\x0A\xC0\x0C", "\x00\x0A" + name},
		{typeRT, "\x00\x0A\xC0\x0C", "\x00\x0A" + name},
		{typePX, "\x00\x0A\xC0\x0C\xC0\x0C", "\x00\x0A" + name + name},
		{TypeSRV, "123456\xC0\x0C", "123456" + name},
		{TypeNAPTR, "1234\x01u\x00\x03abc\xC0\x0C", "1234\x01u\x00\x03abc" + name},
		{typeSIG, "123456789012345678\xC0\x0Csignature", "123456789012345678" + name + "signature"},
		{typeNXT, "\xC0\x0Cbits", name + "bits"},
		// RDATA without names is copied.
		{TypeTXT, "\x02\xC0\x0C", "\x02\xC0\x0C"},
		{TypeA, "\xC0\x0C\xC0\x0C", "\xC0\x0C\xC0\x0C"},
		{65280, "\xC0\x0C", "\xC0\x0C"},
		{65280, "\xC0", "\xC0"},
		{TypeTXT, "\x00", "\x00"},

		{TypeNS, "", ""},
		{TypeNS, "\x01b", ""},         // ends inside the name
		{TypeNS, "\x05b", ""},         // ends inside a label
		{TypeNS, "\xC0", ""},          // ends inside a pointer
		{TypeNS, "\x00x", ""},         // data after the name
		{TypeNS, "\x40x\x00", ""},     // a reserved label type
		{TypeNS, "\xC0\x1E", ""},      // pointer to itself
		{TypeNS, "\xC0\x00", ""},      // pointer into the header
		{TypeNS, "\xC0\x0B", ""},      // pointer to the last byte of the header
		{TypeNS, "\xFF\xFF", ""},      // pointer forward
		{TypeNS, "\x01b\xC0\x1E", ""}, // pointer to the start of its own name: a loop
		{TypeNS, "\xC0\x1D", ""},      // pointer to RDLENGTH, 2, which would be a label that holds the pointer
		{TypeSOA, "\x00\x0012345678901234567890", "\x00\x0012345678901234567890"},
		{TypeSOA, "\x00\x001234567890123456789", ""},
		{TypeSOA, "\x00\x00123456789012345678901", ""},
		{TypeSOA, "\x00", ""},
		{TypeMX, "\x00", ""},
		{TypeMX, "\x00\x0A", ""},
		{TypeSRV, "12345", ""},
		{TypeSRV, "123456", ""},
		{TypeSRV, "123456\x00x", ""},
		{TypeNAPTR, "123", ""},
		{TypeNAPTR, "1234", ""},
		{TypeNAPTR, "1234\x01u\x00", ""},
		{TypeNAPTR, "1234\x01u\x00\x05abc\x00", ""},
		{TypeNAPTR, "1234\x01u\x00\x00", ""},
		{TypeNAPTR, "1234\x00\x00\x00\x00x", ""},
		{typePX, "\x00\x0A\xC0\x0C", ""},
		{typeSIG, "12345678901234567", ""},
	} {
		// The question's name a. is at 12, the record's owner at 19, its type at
		// 20, its RDATA at 30. The bytes after the record would complete a
		// truncated name.
		msg := append(make([]byte, HeaderLen), name+"\x00\x01\x00\x01"...)
		off := len(msg)
		msg = AppendRecordHeader(msg, "\x00", tt.typ, 300, len(tt.in))
		msg = append(msg, tt.in...)
		end := len(msg)
		msg = append(msg, "\x00\x00\x0C\x00\x00\x00\x00\x00\x00"...)

		var a Answer
		a.Reset(nil, msg[HeaderLen:off])
		next, err := a.AppendRecord(Authority, msg, off)
		if tt.want == "" {
			if err == nil {
				t.Errorf("%v %q: got %q, want an error", tt.typ, tt.in, a.Records())
			}
			if !a.Empty() || a.Count != [3]uint16{} {
				t.Errorf("%v %q: after an error the answer has %q, counts %v; want none", tt.typ, tt.in, a.Records(), a.Count)
			}
			continue
		}
		if err != nil || next != end || a.Count != [3]uint16{0, 1, 0} {
			t.Errorf("%v %q: next at %d, want %d; counts %v, %v", tt.typ, tt.in, next, end, a.Count, err)
			continue
		}
		rec, ok := ReadRecord(a.Buf, a.RecordsOffset())
		if !ok || rec.Next != len(a.Buf) || string(a.Buf[rec.RData:]) != tt.want {
			t.Errorf("%v %q: got %q, want %q", tt.typ, tt.in, a.Records(), tt.want)
		}
	}
}

func TestAppendRecordMalformed(t *testing.T) {
	msg := message(t, false, "a.", []string{"a. 300 IN A 192.0.2.1"})
	_, body, err := expand(nil, msg, HeaderLen)
	if err != nil {
		t.Fatal(err)
	}
	body += 4
	var a Answer
	a.Reset(nil, msg[HeaderLen:body])
	for n := range len(msg) { // truncated at each offset
		if _, err := a.AppendRecord(Answers, msg[:n], body); err == nil || !a.Empty() || a.Count != [3]uint16{} {
			t.Errorf("%d bytes of %d: got %v, %+v; want an error and an empty answer", n, len(msg), err, a)
		}
	}
	for _, off := range []int{len(msg), len(msg) + 1, len(msg) + 1000} {
		if _, err := a.AppendRecord(Answers, msg, off); err == nil {
			t.Errorf("AppendRecord at %d of %d bytes: got no error", off, len(msg))
		}
	}
	if _, err := a.AppendRecord(Answers, msg, body); err != nil {
		t.Errorf("the whole record: got error %v", err)
	}
}

// RDATA of 65535 bytes cannot grow when its name is written out.
func TestAppendRecordRDataTooLong(t *testing.T) {
	msg := append(make([]byte, HeaderLen), "\x01a\x00\x00\x01\x00\x01"...)
	off := len(msg)
	for _, tt := range []struct {
		rest int
		ok   bool
	}{
		{MaxMessage - 18 - 2, false}, // 65535 bytes; the name of two bytes grows to three
		{MaxMessage - 18 - 3, true},
	} {
		m := AppendRecordHeader(msg[:off:off], "\x00", typeSIG, 300, 18+2+tt.rest)
		m = append(m, make([]byte, 18)...)
		m = append(m, 0xC0, HeaderLen)
		m = append(m, make([]byte, tt.rest)...)
		var a Answer
		a.Reset(nil, nil)
		_, err := a.AppendRecord(Answers, m, off)
		if (err == nil) != tt.ok {
			t.Errorf("%d bytes after the name: got %v, want success %v", tt.rest, err, tt.ok)
		}
		if rec, ok := ReadRecord(a.Buf, HeaderLen); ok != tt.ok || ok && rec.Next-rec.RData != MaxMessage {
			t.Errorf("%d bytes after the name: got record %+v (found %v), want %v", tt.rest, rec, ok, tt.ok)
		}
	}
}

func TestReadRecord(t *testing.T) {
	msg := message(t, true, "www.example.org.", []string{"example.org. 300 IN MX 10 mx.example.org."})
	off := HeaderLen + len("\x03www\x07example\x03org\x00") + 4
	rec, ok := ReadRecord(msg, off)
	if !ok || rec.Owner != off || rec.Head != off+2 || rec.RData != off+12 || rec.Next != len(msg) || rec.Type != TypeMX {
		t.Errorf("record at %d of %x: got %+v, %v", off, msg, rec, ok)
	}
	owner, _, err := expand(nil, msg, rec.Owner)
	if err != nil || !bytes.Equal(owner, onWire(t, "example.org.")) {
		t.Errorf("owner: got %q, %v; want example.org.", owner, err)
	}
}

// answerOf returns an answer for web.shop.svc.cluster.local. with these records.
func answerOf(t testing.TB, sections ...[]string) *Answer {
	t.Helper()
	return imported(t, message(t, false, "web.shop.svc.cluster.local.", sections...))
}

func repeat(n int, s string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

func TestTruncate(t *testing.T) {
	const (
		a   = "web.shop.svc.cluster.local. 5 IN A 10.0.0.1"  // 28 + 14 = 42 bytes, written out
		ns  = "cluster.local. 5 IN NS ns.dns.cluster.local." // 15 + 10 + 22 = 47
		ns2 = "b.c. 5 IN NS d."                              // 5 + 10 + 3 = 18
		x   = "x.c. 5 IN A 10.0.0.1"                         // 5 + 14 = 19
		x6  = "x.c. 5 IN AAAA fd00::1"                       // 5 + 26 = 31
		y   = "y.c. 5 IN A 10.0.0.1"                         // 19
	)
	type counts = [3]uint16
	for _, tt := range []struct {
		what     string
		sections [][]string
		over     int // the number of bytes over the size
		want     counts
		lost     bool
	}{
		{"fits exactly", [][]string{{a, a}}, 0, counts{2, 0, 0}, false},
		{"room to spare", [][]string{{a, a}}, -100, counts{2, 0, 0}, false},
		{"one byte less", [][]string{{a, a}}, 1, counts{1, 0, 0}, true},
		{"one record less exactly", [][]string{{a, a}}, 42, counts{1, 0, 0}, true},
		{"one record and a byte", [][]string{{a, a}}, 43, counts{0, 0, 0}, true},
		{"both records", [][]string{{a, a}}, 84, counts{0, 0, 0}, true},
		{"smaller than the question", [][]string{{a, a}}, 100, counts{0, 0, 0}, true},
		{"additional section first", [][]string{{a}, {ns}, {x}}, 1, counts{1, 1, 0}, false},
		{"authority section next", [][]string{{a}, {ns}, {x}}, 20, counts{1, 0, 0}, false},
		{"answer section last", [][]string{{a}, {ns}, {x}}, 19 + 47 + 1, counts{0, 0, 0}, true},
		{"nothing but authority", [][]string{{}, {ns}}, 1, counts{0, 0, 0}, false},
		{"nothing but additional", [][]string{{}, {}, {x, y}}, 1, counts{0, 0, 1}, false},
		{"a whole additional RRset", [][]string{{a}, {}, {x, x, x}}, 1, counts{1, 0, 0}, false},
		{"not the RRset of another name before it", [][]string{{a}, {}, {x, y, y}}, 1, counts{1, 0, 1}, false},
		{"not the RRset of another type before it", [][]string{{a}, {}, {x, x6, x6}}, 1, counts{1, 0, 1}, false},
		{"two RRsets", [][]string{{a}, {}, {x, x, y, y}}, 19 * 2, counts{1, 0, 2}, false},
		{"a byte of the first RRset", [][]string{{a}, {}, {x, x, y, y}}, 19*2 + 1, counts{1, 0, 0}, false},
		{"an RRset of the authority section", [][]string{{a}, {ns, ns2, ns2}, {x}}, 20, counts{1, 1, 0}, false},
		{"equal records in authority and additional sections", [][]string{{a}, {x}, {x}}, 1, counts{1, 1, 0}, false},
		{"equal records in answer and authority sections", [][]string{{a}, {a}}, 1, counts{1, 0, 0}, false},
	} {
		t.Run(tt.what, func(t *testing.T) {
			whole := answerOf(t, tt.sections...)
			size := len(whole.Buf) - tt.over
			whole.Compress(nil, MaxMessage) // Truncate works before and after it
			compressed := whole
			plain := answerOf(t, tt.sections...)

			lost := plain.Truncate(size)
			if lost != tt.lost || plain.Count != tt.want {
				t.Errorf("Truncate(%d): got counts %v, lost %v; want %v, %v", size, plain.Count, lost, tt.want, tt.lost)
			}
			if len(plain.Buf) > max(size, plain.RecordsOffset()) {
				t.Errorf("Truncate(%d): got %d bytes", size, len(plain.Buf))
			}
			m := unpack(t, sealed(plain)) // Count matches the records
			if got := (counts{uint16(len(m.Answer)), uint16(len(m.Ns)), uint16(len(m.Extra))}); got != tt.want {
				t.Errorf("Truncate(%d): got records %v, want %v", size, got, tt.want)
			}

			for size := len(compressed.Buf); size >= 0; size-- {
				lost := compressed.Truncate(size)
				m := unpack(t, sealed(compressed))
				if lost && len(m.Answer) == len(tt.sections[0]) || len(compressed.Buf) > max(size, compressed.RecordsOffset()) {
					t.Fatalf("compressed, Truncate(%d) = %v: got %d bytes, %v", size, lost, len(compressed.Buf), m)
				}
			}
			if !compressed.Empty() {
				t.Errorf("truncated to 0 bytes: got counts %v, want none", compressed.Count)
			}
		})
	}
}

// An answer may have more records than a header can count, such as that of a
// headless Service.
func TestTruncateUncountableRecords(t *testing.T) {
	q := question(t, "web.shop.svc.cluster.local.")
	one := AppendAddress(nil, OwnerIsQuestion, 5, netip.MustParseAddr("10.0.0.1"))
	for _, n := range []int{65534, 65535, 65536, 66000, 131072, 150000} {
		var a Answer
		a.Reset(nil, q)
		a.Append(Answers, bytes.Repeat(one, n-n/2), n-n/2)
		a.Append(Answers, bytes.Repeat(one, n/2), n/2)
		if want := uint16(min(n, 65535)); a.Count[Answers] != want {
			t.Errorf("%d records: got count %d, want %d", n, a.Count[Answers], want)
		}
		a.Compress(nil, MaxMessage)
		if !a.Truncate(MaxMessage) {
			t.Errorf("%d records: Truncate returned false, want true", n)
		}
		want := (MaxMessage - a.RecordsOffset()) / len(one)
		if m := unpack(t, sealed(&a)); len(m.Answer) != want || int(a.Count[Answers]) != want || len(a.Buf) > MaxMessage {
			t.Errorf("%d records: %d left, counted %d, in %d bytes; want %d", n, len(m.Answer), a.Count[Answers], len(a.Buf), want)
		}
	}
}

// Truncate removes uncounted records and bytes that are no record.
func TestTruncateMalformed(t *testing.T) {
	a := answerOf(t, repeat(3, "web.shop.svc.cluster.local. 5 IN A 10.0.0.1"))
	a.Count[Answers] = 2
	if size := len(a.Buf) - 1; a.Truncate(size) || len(unpack(t, sealed(a)).Answer) != 2 || len(a.Buf) > size {
		t.Errorf("an uncounted record: got %+v, want 2 records", a)
	}
	a = answerOf(t, repeat(2, "web.shop.svc.cluster.local. 5 IN A 10.0.0.1"))
	a.Append(Answers, bytes.Repeat([]byte{0xFF}, 100), 1)
	if !a.Truncate(len(a.Buf)-1) || len(unpack(t, sealed(a)).Answer) != 2 {
		t.Errorf("garbage after the records: got %+v, want 2 records and true", a)
	}
}

// A message has at most 65535 bytes, the most that TCP can carry.
func TestLargestMessage(t *testing.T) {
	q := question(t, "a.")
	for _, over := range []int{0, 1} {
		var a Answer
		a.Reset(nil, q)
		a.Append(Answers, AppendAddress(nil, OwnerIsQuestion, 5, netip.MustParseAddr("10.0.0.1")), 1)
		n := MaxMessage - len(a.Buf) - 12 + over
		a.Append(Answers, append(AppendRecordHeader(nil, OwnerIsQuestion, 65280, 5, n), make([]byte, n)...), 1)
		if len(a.Buf) != MaxMessage+over {
			t.Fatalf("the test is wrong: the message has %d bytes", len(a.Buf))
		}
		a.Compress(nil, MaxMessage)
		if lost := a.Truncate(MaxMessage); lost != (over == 1) {
			t.Errorf("%d bytes too many: Truncate returned %v, want %v", over, lost, over == 1)
		}
		if m := unpack(t, sealed(&a)); len(m.Answer) != 2-over {
			t.Errorf("%d bytes too many: got %d records, want %d", over, len(m.Answer), 2-over)
		}
	}
}

// The records of an answer are valid for every letter case of the question.
func TestAnswerLetterCase(t *testing.T) {
	a := answerOf(t)
	a.Append(Answers, AppendAddress(nil, OwnerIsQuestion, 5, netip.MustParseAddr("10.0.0.1")), 1)
	var b Answer
	b.Reset(nil, question(t, strings.ToUpper("web.shop.svc.cluster.local.")))
	b.Append(Answers, a.Records(), 1)
	m := unpack(t, sealed(&b))
	if got := m.Answer[0].Header().Name; got != "WEB.SHOP.SVC.CLUSTER.LOCAL." {
		t.Errorf("got owner %s, want the letter case of the question", got)
	}
	if _, ok := m.Answer[0].(*dns.A); !ok {
		t.Errorf("got %v, want an A record", m.Answer[0])
	}
}
