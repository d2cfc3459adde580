package wire

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// A packet is a request under construction.
type packet []byte

// header returns a header with ID 0x1234, RD and these section counts.
func header(counts ...byte) packet {
	p := packet{0x12, 0x34, 1, 0}
	for _, c := range counts {
		p = append(p, 0, c)
	}
	return p
}

func (p packet) add(s string) packet { return append(p[:len(p):len(p)], s...) }

// flags replaces the second word of the header.
func (p packet) flags(f uint16) packet {
	p = bytes.Clone(p)
	p[2], p[3] = byte(f>>8), byte(f)
	return p
}

const (
	local  = "\x05local\x00"
	localA = local + "\x00\x01\x00\x01" // the question local. A IN

	opt     = "\x00\x00\x29\x04\xD0\x00\x00\x00\x00\x00\x00"                 // 1232 bytes, no options
	optDO   = "\x00\x00\x29\x10\x00\x00\x00\x80\x00\x00\x00"                 // 4096 bytes, DO
	nsid    = "\x00\x00\x29\x04\xD0\x00\x00\x00\x00\x00\x04\x00\x03\x00\x00" // 1232 bytes, NSID
	recordA = "\xC0\x0C\x00\x01\x00\x01\x00\x00\x00\x1E\x00\x04\x0A\x00\x00\x01"
	soa     = "\xC0\x0C\x00\x06\x00\x01\x00\x00\x00\x00\x00\x16\x00\x00" + "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
)

func TestParse(t *testing.T) {
	const (
		l63   = "\x3Faaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		tail  = "\x00\x01\x00\x01"
		edns1 = "\x00\x00\x29\x04\xD0\x00\x01\x00\x00\x00\x00"
	)
	plain := header(1, 0, 0, 0).add(localA)
	name64 := strings.Repeat("\x01a", 64) + "\x00"
	name127 := strings.Repeat("\x01a", 127) + "\x00"         // 255 bytes
	name255 := l63 + l63 + l63 + "\x3D" + l63[1:62] + "\x00" // also 255 bytes
	type want struct {
		fault Fault
		name  string // wire form, lower case
		typ   Type
		class Class
		edns  bool
		do    bool
		size  uint16
	}
	fine := want{name: local, typ: TypeA, class: ClassIN, size: 512}
	with := func(edit func(*want)) want { w := fine; edit(&w); return w }
	fault := func(f Fault) want { return with(func(w *want) { w.fault = f }) }
	name := func(s string) want { return with(func(w *want) { w.name = s }) }
	edns := func(size uint16, do bool) want {
		return with(func(w *want) { w.edns, w.size, w.do = true, size, do })
	}
	unreadable, noQuestion := want{fault: Unreadable}, want{fault: Malformed, size: 512}

	for _, tt := range []struct {
		what   string
		packet packet
		want   want
	}{
		{"ordinary", plain, fine},
		{"other type and class", header(1, 0, 0, 0).add(local + "\xFF\xFE\x00\x03"),
			with(func(w *want) { w.typ, w.class = 0xFFFE, ClassCH })},
		{"mixed case", header(1, 0, 0, 0).add("\x05LoCaL\x00" + tail), fine},
		{"only letters are lowered", header(1, 0, 0, 0).add("\x06@[`{Z\xC3\x00" + tail), name("\x06@[`{z\xC3\x00")},
		{"root", header(1, 0, 0, 0).add("\x00" + tail), name("\x00")},
		{"64 labels", header(1, 0, 0, 0).add(name64 + tail), name(name64)},
		{"127 labels, 255 bytes", header(1, 0, 0, 0).add(name127 + tail), name(name127)},
		{"label of 63 bytes", header(1, 0, 0, 0).add(l63 + "\x00" + tail), name(l63 + "\x00")},
		{"255 bytes", header(1, 0, 0, 0).add(name255 + tail), name(name255)},
		{"bytes behind the question", plain.add("garbage"), fine},
		{"all flags but QR", plain.flags(0x07FF), fine},

		{"EDNS", header(1, 0, 0, 1).add(localA + opt), edns(1232, false)},
		{"EDNS with DO", header(1, 0, 0, 1).add(localA + optDO), edns(4096, true)},
		{"EDNS with bytes behind", header(1, 0, 0, 1).add(localA + optDO + "xyz"), edns(4096, true)},
		{"size 0 is 512", header(1, 0, 0, 1).add(localA + "\x00\x00\x29\x00\x00\x00\x00\x00\x00\x00\x00"), edns(512, false)},
		{"size 511 is 512", header(1, 0, 0, 1).add(localA + "\x00\x00\x29\x01\xFF\x00\x00\x00\x00\x00\x00"), edns(512, false)},
		{"size 513", header(1, 0, 0, 1).add(localA + "\x00\x00\x29\x02\x01\x00\x00\x00\x00\x00\x00"), edns(513, false)},
		{"size 65535", header(1, 0, 0, 1).add(localA + "\x00\x00\x29\xFF\xFF\x00\x00\x00\x00\x00\x00"), edns(65535, false)},
		{"reserved EDNS flags", header(1, 0, 0, 1).add(localA + "\x00\x00\x29\x04\xD0\x00\x00\x7F\xFF\x00\x00"), edns(1232, false)},
		{"extended rcode in a request", header(1, 0, 0, 1).add(localA + "\x00\x00\x29\x04\xD0\xFF\x00\x00\x00\x00\x00"), edns(1232, false)},
		{"empty option", header(1, 0, 0, 1).add(localA + nsid), edns(1232, false)},
		{"cookie and an unknown option", header(1, 0, 0, 1).add(localA + "\x00\x00\x29\x04\xD0\x00\x00\x00\x00\x00\x12" +
			"\x00\x0A\x00\x08ABCDEFGH" + "\xFD\xE9\x00\x02xy"), edns(1232, false)},
		{"OPT among additional records", header(1, 0, 0, 3).add(localA + recordA + optDO + recordA), edns(4096, true)},
		{"OPT in the answer section is none", header(1, 1, 0, 0).add(localA + opt), fine},
		{"OPT in the authority section is none", header(1, 0, 1, 1).add(localA + opt + optDO), edns(4096, true)},
		{"IXFR, its SOA in the authority section", header(1, 0, 1, 0).add(local + "\x00\xFB\x00\x01" + soa),
			with(func(w *want) { w.typ = TypeIXFR })},
		{"records in all sections", header(1, 1, 1, 1).add(localA + recordA + soa + opt), edns(1232, false)},

		{"EDNS version 1", header(1, 0, 0, 1).add(localA + edns1),
			with(func(w *want) { w.fault, w.edns, w.size = UnknownVersion, true, 1232 })},
		{"EDNS version 1 with options of its own", header(1, 0, 0, 1).add(localA + edns1[:10] + "\x01!"),
			with(func(w *want) { w.fault, w.edns, w.size = UnknownVersion, true, 1232 })},
		{"EDNS version 255 with DO", header(1, 0, 0, 1).add(localA + "\x00\x00\x29\x04\xD0\x00\xFF\x80\x00\x00\x00"),
			with(func(w *want) { w.fault, w.edns, w.size, w.do = UnknownVersion, true, 1232, true })},

		{"two OPTs", header(1, 0, 0, 2).add(localA + optDO + opt),
			with(func(w *want) { w.fault, w.edns, w.size, w.do = Malformed, true, 4096, true })},
		{"OPT of another owner", header(1, 0, 0, 1).add(localA + local + opt[1:]), fault(Malformed)},
		{"OPT whose owner is a pointer to the root", header(1, 0, 0, 1).add(localA + "\xC0\x12" + opt[1:]), fault(Malformed)},
		{"OPT without its end", header(1, 0, 0, 1).add(localA + opt[:10]), fault(Malformed)},
		{"OPT with less RDATA than it says", header(1, 0, 0, 1).add(localA + nsid[:14]), fault(Malformed)},
		{"option without its length", header(1, 0, 0, 1).add(localA + opt[:10] + "\x03\x00\x03\x00"),
			with(func(w *want) { w.fault, w.edns, w.size = Malformed, true, 1232 })},
		{"option longer than the RDATA", header(1, 0, 0, 1).add(localA + opt[:10] + "\x05\x00\x03\x00\x02x" + "yyyy"),
			with(func(w *want) { w.fault, w.edns, w.size = Malformed, true, 1232 })},
		{"record whose owner has a reserved label type", header(1, 0, 0, 1).add(localA + "\x40" + opt[1:]), fault(Malformed)},
		{"record whose owner ends inside a pointer", header(1, 0, 0, 1).add(localA + "\xC0"), fault(Malformed)},
		{"an additional record that is not there", header(1, 0, 0, 1).add(localA), fault(Malformed)},
		{"an answer that is not there", header(1, 1, 0, 0).add(localA), fault(Malformed)},
		{"65535 of each in 28 bytes", packet{0, 0, 0, 0, 0, 1, 255, 255, 255, 255, 255, 255}.add("\x00" + tail + opt),
			with(func(w *want) { w.fault, w.name = Malformed, "\x00" })},
		{"two questions", header(2, 0, 0, 0).add(localA + localA), fault(Malformed)},
		{"two questions, it says", header(2, 0, 0, 0).add(localA), fault(Malformed)},
		{"65535 questions in 23 bytes", packet{0, 0, 0, 0, 255, 255, 0, 0, 0, 0, 0, 0}.add(localA), fault(Malformed)},

		{"opcode STATUS", plain.flags(2 << 11), fault(UnknownOpcode)},
		{"opcode NOTIFY", plain.flags(4 << 11), fault(UnknownOpcode)},
		{"opcode UPDATE", header(1, 0, 0, 0).add(local + "\x00\x06\x00\x01").flags(5 << 11),
			with(func(w *want) { w.fault, w.typ = UnknownOpcode, TypeSOA })},
		{"opcode 15 with EDNS", header(1, 0, 0, 1).add(localA + optDO).flags(15 << 11),
			with(func(w *want) { w.fault, w.edns, w.size, w.do = UnknownOpcode, true, 4096, true })},
		{"opcode 15 with EDNS version 1", header(1, 0, 0, 1).add(localA + edns1).flags(15 << 11),
			with(func(w *want) { w.fault, w.edns, w.size = UnknownOpcode, true, 1232 })},
		{"opcode 6, no question", header(0, 0, 0, 0).flags(6 << 11), want{fault: UnknownOpcode, size: 512}},
		{"opcode 6, no question that can be told", header(1, 0, 0, 0).add("\xFF").flags(6 << 11), want{fault: UnknownOpcode, size: 512}},

		{"nothing", nil, unreadable},
		{"eleven bytes", header(1, 0, 0, 0)[:11], unreadable},
		{"a reply", plain.flags(FlagQR), unreadable},
		{"a reply of another opcode", plain.flags(FlagQR | 4<<11), unreadable},
		{"no question", header(0, 0, 0, 0), noQuestion},
		{"no question, but the bytes of one", header(0, 0, 0, 0).add(localA), noQuestion},
		{"no question, but an OPT (a cookie's refresh, RFC 7873 §5.4)", header(0, 0, 0, 1).add(opt),
			want{fault: Malformed, edns: true, size: 1232}},
		{"header alone", header(1, 0, 0, 0), noQuestion},
		{"four bytes of question", header(1, 0, 0, 0).add(tail), noQuestion},
		{"question without its class", header(1, 0, 0, 0).add(localA[:len(localA)-1]), noQuestion},
		{"name without its end", header(1, 0, 0, 0).add("\x05local"), noQuestion},
		{"name that ends inside a label", header(1, 0, 0, 0).add("\x3Flocal" + tail), noQuestion},
		{"label of 64 bytes", header(1, 0, 0, 0).add("\x40" + l63[1:] + "a\x00" + tail), noQuestion},
		{"reserved label type 10", header(1, 0, 0, 0).add("\x80\x00" + tail), noQuestion},
		{"pointer to itself", header(1, 0, 0, 0).add("\xC0\x0C" + tail), noQuestion},
		{"pointer behind a label", header(1, 0, 0, 0).add("\x01a\xC0\x0C" + tail), noQuestion},
		{"pointer into the header", header(1, 0, 0, 0).add("\xC0\x06" + tail), noQuestion},
		{"256 bytes", header(1, 0, 0, 0).add(l63 + l63 + l63 + "\x3E" + l63[1:63] + "\x00" + tail), noQuestion},
		{"128 labels", header(1, 0, 0, 0).add(strings.Repeat("\x01a", 128) + "\x00" + tail), noQuestion},
		{"a name that never ends", header(1, 0, 0, 0).add(strings.Repeat("\x01a", 600)), noQuestion},
		{"NOTIFY without a question", header(0, 0, 0, 0).flags(4 << 11), noQuestion},
		{"NOTIFY with two questions", header(2, 0, 0, 0).add(localA + localA).flags(4 << 11), fault(Malformed)},
		{"no question, but an OPT that lies", header(0, 0, 0, 1).add(opt[:10]), noQuestion},
	} {
		t.Run(tt.what, func(t *testing.T) {
			// A Request is used again: Parse must replace all its fields.
			r := new(Request)
			if f := r.Parse(header(1, 0, 0, 1).add("\x07example\x03org\x00\x00\xFF\x00\xFF" + optDO)); f != NoFault {
				t.Fatalf("parsing the request before: got fault %d, want none", f)
			}
			p := tt.packet
			before := bytes.Clone(p)
			fault := r.Parse(p)
			if !bytes.Equal(p, before) {
				t.Fatalf("Parse changed the packet: got %x, want %x", p, before)
			}
			if fault != tt.want.fault {
				t.Fatalf("packet %x: got fault %d, want %d", p, fault, tt.want.fault)
			}
			if fault == Unreadable {
				return
			}
			got := want{fault, string(r.Name()), r.Type, r.Class, r.EDNS, r.DO, r.UDPSize}
			if got != tt.want {
				t.Errorf("packet %x:\n got %+v\nwant %+v", p, got, tt.want)
			}
			if r.ID != uint16(p[0])<<8|uint16(p[1]) || r.Flags != uint16(p[2])<<8|uint16(p[3]) {
				t.Errorf("got ID %04x and flags %04x, want %x", r.ID, r.Flags, p[:4])
			}
			q := r.Question(p)
			if len(r.Name()) == 0 {
				if len(q) != 0 {
					t.Errorf("packet %x: got question %x without a name, want none", p, q)
				}
				return
			}
			if !bytes.Equal(q, p[HeaderLen:HeaderLen+len(r.Name())+4]) {
				t.Errorf("packet %x: got question %x", p, q)
			}
			checkLabels(t, r)
		})
	}
}

// checkLabels compares Labels and LabelOffset with the name.
func checkLabels(t *testing.T, r *Request) {
	t.Helper()
	name := r.Name()
	if got, want := r.Labels(), Name(name).Labels(); got != want {
		t.Errorf("name %q: got %d labels, want %d", name, got, want)
	}
	at := 0
	for i := range r.Labels() {
		if r.LabelOffset(i) != at {
			t.Errorf("name %q: got label %d at %d, want %d", name, i, r.LabelOffset(i), at)
		}
		at += int(name[at]) + 1
	}
	if r.LabelOffset(r.Labels()) != at || at != len(name)-1 {
		t.Errorf("name %q: got the root at %d, want %d", name, r.LabelOffset(r.Labels()), len(name)-1)
	}
}

// A packet truncated at any byte is rejected without a panic.
func TestParseTruncated(t *testing.T) {
	whole := header(1, 1, 1, 1).add(localA + recordA + soa + nsid)
	var r Request
	if f := r.Parse(whole); f != NoFault {
		t.Fatalf("the whole packet: got fault %d, want none", f)
	}
	for n := range whole {
		want := Malformed
		if n < HeaderLen {
			want = Unreadable
		}
		// The slice has capacity for the rest, which must not be read.
		if f := r.Parse(whole[:n]); f != want {
			t.Errorf("%d bytes of %d: got fault %d, want %d", n, len(whole), f, want)
		}
	}
}

// A compacted request is parsed again with any name, also if its name had the largest size and few labels.
func TestParseAfterCompact(t *testing.T) {
	for _, before := range []string{".", "www.example.", longName(63), longName(31), strings.Repeat("a.", 127)} {
		for _, after := range []string{".", longName(63), strings.Repeat("b.", 127)} {
			p := AppendRequest(nil, 1, FlagRD, onWire(t, before), TypeA)
			var r Request
			if f := r.Parse(p); f != NoFault {
				t.Fatalf("%s: got fault %d, want none", before, f)
			}
			r.Compact()

			if !r.SetQuestion(onWire(t, after), TypeA, ClassIN) || Name(r.Name()).String() != after {
				t.Errorf("%s, compacted, then %s: got %s", before, after, Name(r.Name()))
			}
			r.Compact()
			if r.RestoreQuestion(p); Name(r.Name()).String() != before {
				t.Errorf("%s restored after %s: got %s", before, after, Name(r.Name()))
			}
		}
	}
}

// longName returns a name of 255 bytes in wire form, with labels of size bytes.
func longName(size int) string {
	label := strings.Repeat("x", size) + "."
	n := 254 / (size + 1)
	return strings.Repeat(label, n) + strings.Repeat("y", 253-n*(size+1)) + "."
}

func TestAppendRequest(t *testing.T) {
	name := onWire(t, "Web.shop.svc.cluster.local.")
	p := AppendRequest([]byte("before"), 7, FlagRD|FlagCD, name, TypeSRV)
	if !bytes.HasPrefix(p, []byte("before")) {
		t.Fatalf("got %q, want it appended to the buffer", p)
	}
	p = p[len("before"):]
	m := unpack(t, p)
	if m.Id != 7 || !m.RecursionDesired || !m.CheckingDisabled || m.Response || len(m.Question) != 1 ||
		m.Question[0] != (dns.Question{Name: "Web.shop.svc.cluster.local.", Qtype: dns.TypeSRV, Qclass: dns.ClassINET}) {
		t.Errorf("got %v, want a query for Web.shop.svc.cluster.local. SRV with ID 7, RD and CD", m)
	}
	var r Request
	if f := r.Parse(p); f != NoFault || Name(r.Name()).String() != "web.shop.svc.cluster.local." {
		t.Errorf("parsed: got fault %d, name %s; want none, web.shop.svc.cluster.local.", f, Name(r.Name()))
	}
}

// Packets of ordinary clients.
func TestParseOracleRequests(t *testing.T) {
	for _, name := range []string{".", "local.", "Web.Shop.svc.cluster.local.", `a\.b.c.`, strings.Repeat("a.", 127)} {
		for _, do := range []bool{false, true} {
			m := new(dns.Msg)
			m.SetQuestion(name, dns.TypeAAAA)
			m.SetEdns0(1400, do)
			o := m.IsEdns0()
			o.Option = append(o.Option,
				&dns.EDNS0_NSID{Code: dns.EDNS0NSID},
				&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0123456789abcdef"},
				&dns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")})
			p, err := m.Pack()
			if err != nil {
				t.Fatal(err)
			}
			var r Request
			if f := r.Parse(p); f != NoFault || r.ID != m.Id || !r.EDNS || r.DO != do || r.UDPSize != 1400 || r.Type != TypeAAAA {
				t.Errorf("%s with DO %v: got fault %d, %+v; want ID %d, AAAA, size 1400", name, do, f, r, m.Id)
			}
			if got := string(AppendText(nil, r.Question(p)[:len(r.Name())])); got != name {
				t.Errorf("question name: got %s, want %s", got, name)
			}
		}
	}
}

func TestMnemonics(t *testing.T) {
	for n := range Type(300) {
		s := n.String()
		if want := dns.TypeToString[uint16(n)]; s != want && s != "TYPE"+strconv.Itoa(int(n)) {
			t.Errorf("type %d: got %s, want %s", uint16(n), s, want)
		}
	}
	for c, want := range map[Class]string{ClassIN: "IN", ClassCH: "CH", ClassHS: "HS", ClassANY: "ANY", 254: "CLASS254"} {
		if c.String() != want {
			t.Errorf("class %d: got %s, want %s", uint16(c), c, want)
		}
	}
	for c, want := range map[RCode]string{NoError: "NOERROR", FormErr: "FORMERR", ServFail: "SERVFAIL", NXDomain: "NXDOMAIN",
		NotImp: "NOTIMP", Refused: "REFUSED", BadVers: "BADVERS", 23: "BADCOOKIE", 12: "RCODE12", 24: "RCODE24"} {
		if c.String() != want {
			t.Errorf("response code %d: got %s, want %s", uint16(c), c, want)
		}
	}
}
