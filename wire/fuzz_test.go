package wire

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// FuzzParse compares Request.Parse with the oracle's Unpack. If both accept a
// packet, the results are equal. The oracle alone accepts:
//   - replies, messages with no question or several, opcodes other than QUERY;
//   - a question that ends after its name or its type;
//   - a question whose name has a pointer;
//   - section counts that are too large, if the message ends after a record;
//   - two OPT records, or one whose owner is not the root (RFC 6891 §6.1.1);
//   - an OPT record whose last option has no length.
//
// Parse alone accepts malformed RDATA of records that it skips, and malformed
// names behind a pointer, since it does not read them.
func FuzzParse(f *testing.F) {
	for _, p := range []packet{
		header(1, 0, 0, 0).add(localA),
		header(1, 0, 0, 1).add(localA + optDO),
		header(1, 0, 0, 1).add(localA + nsid),
		header(1, 0, 0, 2).add(localA + opt + optDO),
		header(1, 1, 1, 1).add(localA + recordA + soa + opt),
		header(1, 0, 1, 0).add(local + "\x00\xFB\x00\x01" + soa),
		header(1, 0, 0, 1).add(localA + local + opt[1:]),
		header(1, 0, 0, 1).add(localA + opt[:6] + "\x01\x00\x00\x00\x00"),
		header(1, 0, 0, 1).add(localA + opt[:10] + "\x12" + "\x00\x0A\x00\x08ABCDEFGH" + "\xFD\xE9\x00\x02xy"),
		header(2, 0, 0, 0).add(localA + localA),
		header(0, 0, 0, 1).add(opt),
		header(1, 0, 0, 0).add(localA).flags(FlagQR),
		header(1, 0, 0, 1).add(localA + opt).flags(5 << 11),
		header(1, 0, 0, 0).add("\x05LoCaL\x00\x00\xFF\x00\xFF" + "trailing"),
		header(1, 0, 0, 0).add("\x00\x00\x02\x00\x01"),
		header(1, 0, 0, 0).add("\xC0\x0C\x00\x01\x00\x01"),
		header(1, 0, 0, 0).add("\x40a\x00\x00\x01\x00\x01"),
		header(1, 0, 0, 0).add(strings.Repeat("\x01a", 127) + "\x00\x00\x01\x00\x01"),
		header(1, 0, 0, 0).add(strings.Repeat("\x01a", 128) + "\x00\x00\x01\x00\x01"),
		{0, 0, 0, 0, 0, 1, 255, 255, 255, 255, 255, 255, 0, 0, 1, 0, 1},
		{0, 0, 0, 0},
		nil,
	} {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		// The Request held another packet before. The memory ends with the
		// packet, so that reading further panics.
		r := new(Request)
		r.Parse(header(1, 0, 0, 1).add("\x07example\x03org\x00\x00\xFF\x00\xFF" + optDO))
		p = append(make([]byte, 0, len(p)), p...)
		before := bytes.Clone(p)
		fault := r.Parse(p[:len(p):len(p)])
		if !bytes.Equal(before, p) {
			t.Fatalf("Parse changed the packet: got %x, want %x", p, before)
		}
		m := new(dns.Msg)
		err := m.Unpack(p)
		if fault != Unreadable {
			checkRequest(t, r, p)
		}
		if err != nil {
			return
		}
		opt := m.IsEdns0()
		if fault == Unreadable || fault == Malformed {
			if !isListedDifference(t, m, p) {
				t.Fatalf("packet %x: got fault %d, want none: miekg/dns reads %v", p, fault, m)
			}
			return
		}
		if fault == UnknownOpcode {
			if m.Opcode == dns.OpcodeQuery {
				t.Fatalf("packet %x: got fault %d, want none: miekg/dns reads %v", p, fault, m)
			}
			return
		}
		if r.ID != m.Id || m.Opcode != 0 || m.Response || len(m.Question) != 1 {
			t.Fatalf("packet %x: got %+v, want %v", p, r, m)
		}
		q := m.Question[0]
		if r.Type != Type(q.Qtype) || r.Class != Class(q.Qclass) || !bytes.Equal(r.Question(p)[:len(r.Name())], onWire(t, q.Name)) {
			t.Fatalf("packet %x: got question %s %v %v, want %v", p, Name(r.Name()), r.Type, r.Class, q)
		}
		if r.EDNS != (opt != nil) {
			t.Fatalf("packet %x: got EDNS %v, want %v", p, r.EDNS, opt)
		}
		if opt == nil {
			if r.DO || r.UDPSize != MinUDPSize || fault != NoFault {
				t.Fatalf("packet %x without OPT: got DO %v, size %d, fault %d; want false, %d, 0", p, r.DO, r.UDPSize, fault, MinUDPSize)
			}
			return
		}
		if r.DO != opt.Do() || r.UDPSize != max(MinUDPSize, opt.UDPSize()) || (fault == UnknownVersion) != (opt.Version() != 0) {
			t.Fatalf("packet %x: got DO %v, size %d, fault %d; want %v", p, r.DO, r.UDPSize, fault, opt)
		}
	})
}

// isListedDifference reports whether one of the differences listed at FuzzParse explains
// why p was rejected. m is the oracle's result for p.
func isListedDifference(t *testing.T, m *dns.Msg, p []byte) bool {
	counts := [4]int{len(m.Question), len(m.Answer), len(m.Ns), len(m.Extra)}
	for i, n := range counts {
		if n != int(binary.BigEndian.Uint16(p[4+2*i:])) {
			return true
		}
	}
	if m.Response || len(m.Question) != 1 || m.Opcode != dns.OpcodeQuery {
		return true
	}
	end, _ := skip(p, HeaderLen)
	if plain := onWire(t, m.Question[0].Name); end != HeaderLen+len(plain) || end+4 > len(p) {
		return true
	}
	opts := 0
	for _, rr := range m.Extra {
		if o, ok := rr.(*dns.OPT); ok {
			opts++
			if o.Hdr.Name != "." || packedOptions(o) != int(o.Hdr.Rdlength) {
				return true
			}
		}
	}
	// The owner may also be a pointer to a root label.
	off := end + 4
	for range len(m.Answer) + len(m.Ns) + len(m.Extra) {
		rec, ok := ReadRecord(p, off)
		if ok && rec.Type == TypeOPT && p[rec.Owner] != 0 {
			return true
		}
		off = rec.Next
	}
	return opts > 1
}

// packedOptions returns the size of the options that the oracle read.
func packedOptions(o *dns.OPT) int {
	return dns.Len(&dns.OPT{Hdr: o.Hdr, Option: o.Option}) - dns.Len(&dns.OPT{Hdr: o.Hdr})
}

// checkRequest checks properties of every request with a question.
func checkRequest(t *testing.T, r *Request, p []byte) {
	if r.UDPSize < MinUDPSize || !r.EDNS && r.DO {
		t.Fatalf("packet %x: got EDNS %v, DO %v, size %d; want no DO without EDNS and at least %d", p, r.EDNS, r.DO, r.UDPSize, MinUDPSize)
	}
	if len(r.Name()) == 0 {
		if len(r.Question(p)) != 0 {
			t.Fatalf("packet %x: got question %x without a name, want none", p, r.Question(p))
		}
		return
	}
	checkLabels(t, r)
	spelled := r.Question(p)[:len(r.Name())]
	for i, c := range spelled {
		if lower(c) != r.Name()[i] {
			t.Fatalf("question name %q: got name %q, want it in lower case", spelled, r.Name())
		}
	}
	n, err := ParseName(string(AppendText(nil, spelled)))
	if err != nil || string(n) != string(r.Name()) {
		t.Fatalf("ParseName(%q) = %q, %v; want %q", AppendText(nil, spelled), string(n), err, r.Name())
	}
}

// FuzzAnswer imports messages record by record, compresses and truncates them.
// The oracle must read the same records in the result.
//
// Each message is imported twice: as the oracle packs it, where all records must
// be accepted, and as it is. The import may reject more than the oracle: pointers
// forward or into the header, RDATA with data after its names, and in both cases
// RDATA that ends in place of a name, which the oracle accepts for dynamic
// updates. RDATA of types that must not be compressed is copied with its
// pointers.
func FuzzAnswer(f *testing.F) {
	every := everyType()
	f.Add(message(f, true, "WWW.example.org.", every, every[:9], every[9:]), uint16(512))
	f.Add(message(f, false, "WWW.example.org.", every, every[:9], every[9:]), uint16(1232))
	for i, s := range every {
		f.Add(message(f, true, "example.org.", []string{s}, nil, []string{s}), uint16(12*i))
	}
	f.Add(message(f, true, ".", repeat(3, ". 1 IN NS ."), repeat(2, "a. 1 IN NS A.")), uint16(40))
	f.Add(message(f, true, strings.Repeat("a.", 127), repeat(2, strings.Repeat("b.", 127)+" 1 IN MX 1 "+strings.Repeat("c.", 127))), uint16(900))
	f.Add([]byte(header(1, 1, 1, 1).add(localA+recordA+soa+opt).flags(FlagQR)), uint16(30))
	f.Add([]byte(header(1, 1, 0, 0).add(localA+"\xC0\x17\x00\x05\x00\x01\x00\x00\x00\x01\x00\x02\xC0\x17")), uint16(64))
	f.Fuzz(func(t *testing.T, p []byte, size uint16) {
		m := new(dns.Msg)
		if m.Unpack(p) != nil || len(m.Question) != 1 {
			return
		}
		if raw, err := importAll(p); err == nil {
			checkImport(t, p, raw)
		}
		m.Compress = true
		packed, err := m.Pack()
		if err != nil || len(packed) > MaxMessage {
			return // the oracle reads some records that it cannot pack
		}
		m = new(dns.Msg)
		if m.Unpack(packed) != nil {
			return
		}
		a, err := importAll(packed)
		if err != nil {
			for _, rr := range append(append(m.Answer, m.Ns...), m.Extra...) {
				if lacksName(rr) {
					return
				}
			}
			t.Fatalf("importing %x: got error %v, want\n%v", packed, err, m)
		}
		if got := unpack(t, sealed(a)); !sameMeaning(got, m) {
			t.Fatalf("importing %x: got\n%swant\n%s", packed, zone(got), zone(m))
		}
		length := len(a.Buf)
		a.Compress(nil, MaxMessage)
		if got := unpack(t, sealed(a)); !sameMeaning(got, m) || len(a.Buf) > length {
			t.Fatalf("compressing %d bytes: got %d bytes\n%swant at most as many\n%s", length, len(a.Buf), zone(got), zone(m))
		}
		checkTruncate(t, a, m, int(size))
	})
}

// lacksName reports whether the RDATA ended in place of a name.
func lacksName(rr dns.RR) bool {
	v := reflect.ValueOf(rr).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) { // the fields of NXT are those of an embedded NSEC
		if strings.HasSuffix(f.Tag.Get("dns"), "domain-name") && v.FieldByIndex(f.Index).String() == "" {
			return true
		}
	}
	return false
}

// checkImport compares the records of a with the records that the oracle reads in p.
func checkImport(t *testing.T, p []byte, a *Answer) {
	end, _ := skip(p, HeaderLen)
	from, to := end+4, a.RecordsOffset()
	for to < len(a.Buf) {
		in, ok := ReadRecord(p, from)
		out, ok2 := ReadRecord(a.Buf, to)
		if !ok || !ok2 || in.Type != out.Type {
			t.Fatalf("importing the record at %d of %x: got %x, want a record of its type", from, p, a.Buf[to:])
		}
		from, to = in.Next, out.Next
		if in.Type.layout().names == 0 {
			if !bytes.Equal(p[in.RData:in.Next], a.Buf[out.RData:out.Next]) {
				t.Fatalf("importing %v: got RDATA %x, want %x", in.Type, a.Buf[out.RData:out.Next], p[in.RData:in.Next])
			}
			continue
		}
		theirs, _, err := dns.UnpackRR(p, in.Owner)
		if err != nil {
			continue
		}
		ours, _, err := dns.UnpackRR(a.Buf, out.Owner)
		if err != nil || ours.String() != theirs.String() {
			t.Fatalf("importing a record: got %v, %v; want %v", ours, err, theirs)
		}
	}
}

// checkTruncate truncates a, which has the records of m, to size.
func checkTruncate(t *testing.T, a *Answer, m *dns.Msg, size int) {
	whole := len(a.Buf)
	lost := a.Truncate(size)
	got := unpack(t, sealed(a))
	if len(a.Buf) > max(size, a.RecordsOffset()) {
		t.Fatalf("Truncate(%d): got %d bytes", size, len(a.Buf))
	}
	if lost != (len(got.Answer) < len(m.Answer)) {
		t.Fatalf("Truncate(%d) = %v, with %d of %d answers left", size, lost, len(got.Answer), len(m.Answer))
	}
	if whole <= size && len(a.Buf) != whole {
		t.Fatalf("Truncate(%d) of %d bytes: got %d bytes, want all", size, whole, len(a.Buf))
	}
	if !strings.HasPrefix(lines(m.Answer), lines(got.Answer)) || !strings.HasPrefix(lines(m.Ns), lines(got.Ns)) ||
		!strings.HasPrefix(lines(m.Extra), lines(got.Extra)) {
		t.Fatalf("Truncate(%d): got\n%swant the first records of each section of\n%s", size, zone(got), zone(m))
	}
	if len(got.Answer) < len(m.Answer) && len(got.Ns)+len(got.Extra) > 0 || len(got.Ns) < len(m.Ns) && len(got.Extra) > 0 {
		t.Fatalf("Truncate(%d): got\n%swant no records behind a section that is incomplete", size, zone(got))
	}
}

func lines(rrs []dns.RR) string {
	var b strings.Builder
	for _, rr := range rrs {
		b.WriteString(rr.String() + "\n")
	}
	return b.String()
}

// sameMeaning compares the question and the records of the three sections.
func sameMeaning(a, b *dns.Msg) bool {
	return len(a.Question) == len(b.Question) && a.Question[0] == b.Question[0] && zone(a) == zone(b)
}
