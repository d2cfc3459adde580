package wire

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// addressed returns an answer with the address 10.0.0.i and TTL 100+i for each
// owner.
func addressed(owners ...string) *Answer {
	a := new(Answer)
	a.Reset(make([]byte, 0, 512), []byte("\x01a\x00\x00\x01\x00\x01"))
	for i, owner := range owners {
		a.Buf = AppendAddress(a.Buf, owner, uint32(100+i), netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
		a.Count[Answers]++
	}
	return a
}

// last returns the last byte of each record's RDATA, and its TTL.
func last(a *Answer) string {
	var out []string
	a.Walk(func(s Section, r Record) bool {
		out = append(out, fmt.Sprintf("%d/%d", a.Buf[r.Next-1], r.TTL(a.Buf)))
		return true
	})
	return strings.Join(out, " ")
}

func TestRotate(t *testing.T) {
	const q, other = OwnerIsQuestion, "\x01b\x00"
	for _, c := range []struct {
		owners []string
		n      uint32
		want   string
	}{
		{[]string{q, q, q}, 0, "0/100 1/101 2/102"},
		{[]string{q, q, q}, 1, "1/101 2/102 0/100"},
		{[]string{q, q, q}, 5, "2/102 0/100 1/101"},
		{[]string{q}, 7, "0/100"},
		{nil, 7, ""},
		{[]string{q, q, other, other, other}, 1, "1/101 0/100 3/103 4/104 2/102"},
		{[]string{q, other}, 1, "0/100 1/101"},
	} {
		a := addressed(c.owners...)
		a.Rotate(c.n)
		if got := last(a); got != c.want {
			t.Errorf("%q by %d: got %s, want %s", c.owners, c.n, got, c.want)
		}
	}
}

// Rotate leaves a CNAME first, rotates MX records of different sizes, and does
// not rotate TXT records.
func TestRotateOtherTypes(t *testing.T) {
	a := addressed()
	add := func(typ Type, rdata string) {
		a.Buf = append(AppendRecordHeader(a.Buf, OwnerIsQuestion, typ, 5, len(rdata)), rdata...)
		a.Count[Answers]++
	}
	add(TypeCNAME, "\x01c\x00")
	add(TypeMX, "\x00\x01\x00")
	add(TypeMX, "\x00\x02\x04mail\x00")
	add(TypeTXT, "\x01x")
	add(TypeTXT, "\x01y")
	var types []string
	a.Rotate(1)
	a.Walk(func(_ Section, r Record) bool {
		types = append(types, fmt.Sprintf("%v:%d", r.Type, r.Next-r.RData))
		return true
	})
	if got := strings.Join(types, " "); got != "CNAME:3 MX:8 MX:3 TXT:2 TXT:2" {
		t.Errorf("got %s, want CNAME:3 MX:8 MX:3 TXT:2 TXT:2", got)
	}
}

func TestTTLs(t *testing.T) {
	a := addressed(OwnerIsQuestion, OwnerIsQuestion, OwnerIsQuestion)
	if ttl, ok := a.MinTTL(); ttl != 100 || !ok {
		t.Errorf("MinTTL: got %d, %v; want 100, true", ttl, ok)
	}
	second := a.RecordsOffset() + len(OwnerIsQuestion) + 14
	a.Age(second, 30)
	a.ClampTTL(a.RecordsOffset(), 72, 90)
	if got := last(a); got != "0/90 1/72 2/72" {
		t.Errorf("after ClampTTL: got %s, want 0/90 1/72 2/72", got)
	}
	a.Age(a.RecordsOffset(), 80)
	if got := last(a); got != "0/10 1/0 2/0" {
		t.Errorf("after Age: got %s, want 0/10 1/0 2/0", got)
	}
	a.Clear()
	if _, ok := a.MinTTL(); ok {
		t.Error("MinTTL of an empty answer: got ok true, want false")
	}
}

func TestAppendSection(t *testing.T) {
	a, other := addressed(OwnerIsQuestion), addressed(OwnerIsQuestion, "\x01b\x00")
	if err := a.AppendSection(Additional, other, Answers); err != nil {
		t.Fatal(err)
	}
	if got := last(a); got != "0/100 0/100 1/101" || a.Count != [3]uint16{1, 0, 2} {
		t.Errorf("got %s, counts %v; want 0/100 0/100 1/101, 1, 0 and 2", got, a.Count)
	}
	if !strings.Contains(string(a.Buf), "\x01a\x00\x00\x01\x00\x01\x00\x00\x00\x64") {
		t.Errorf("got %q, want the owner a. written out in the additional section", a.Buf)
	}
}

func TestAppendRenamed(t *testing.T) {
	other := addressed()
	other.Buf = append(AppendRecordHeader(other.Buf, OwnerIsQuestion, TypeCNAME, 5, 3), "\x01b\x00"...)
	other.Count[Answers]++
	a := addressed()
	names := ""
	_, err := a.AppendRenamed(Answers, other.Buf, other.RecordsOffset(), func(name []byte, typ Type, rdata bool) []byte {
		names += fmt.Sprintf("%q %v %v;", name, typ, rdata)
		return append([]byte("\x03new"), name...)
	})
	want := "\x03new\x01a\x00\x00\x05\x00\x01\x00\x00\x00\x05\x00\x07\x03new\x01b\x00"
	if err != nil || string(a.Records()) != want || names != `"\x01a\x00" CNAME false;"\x01b\x00" CNAME true;` {
		t.Errorf("got records %q, %v, names %s; want %q, names of the owner and of the target", a.Records(), err, names, want)
	}
	if _, err := a.AppendRenamed(Answers, other.Buf, other.RecordsOffset(), func([]byte, Type, bool) []byte { return nil }); err == nil || string(a.Records()) != want {
		t.Errorf("Rename returns nil: got %v, %q; want an error and the same records", err, a.Records())
	}
}

func TestSetQuestion(t *testing.T) {
	packet := AppendRequest(nil, 1, 0, []byte("\x03WWW\x07example\x00"), TypeA)
	var r Request
	if f := r.Parse(packet); f != NoFault {
		t.Fatal(f)
	}
	if !r.SetQuestion([]byte("\x01X\x01y\x02Zz\x00"), TypeMX, ClassCH) {
		t.Fatal("SetQuestion: got false, want true")
	}
	if string(r.Name()) != "\x01x\x01y\x02zz\x00" || r.Labels() != 3 || r.LabelOffset(2) != 4 || r.LabelOffset(3) != 7 || r.Type != TypeMX || r.Class != ClassCH {
		t.Errorf("after SetQuestion: got %q with %d labels, %v %v; want x.y.zz. with 3, MX CH", r.Name(), r.Labels(), r.Type, r.Class)
	}
	for _, bad := range []string{"", "\x01", "\x01a", "\x01a\x00\x00", "\x40", "\xC0\x0C", strings.Repeat("\x3f"+strings.Repeat("a", 63), 4) + "\x00"} {
		if r.SetQuestion([]byte(bad), TypeA, ClassIN) || r.Labels() != 3 {
			t.Errorf("SetQuestion(%q): got true, want false", bad)
		}
	}
	r.RestoreQuestion(packet)
	if string(r.Name()) != "\x03www\x07example\x00" || r.Labels() != 2 || r.Type != TypeA || r.Class != ClassIN {
		t.Errorf("after RestoreQuestion: got %q with %d labels, %v %v; want www.example. with 2, A IN", r.Name(), r.Labels(), r.Type, r.Class)
	}
}

func TestOptions(t *testing.T) {
	packet := AppendRequest(nil, 1, 0, []byte("\x00"), TypeA)
	packet[11] = 1
	packet = append(packet, 0, 0, 41, 4, 0xD0, 0, 0, 0, 0, 0, 5, 0, 3, 0, 1, 'x')
	var r Request
	if f := r.Parse(packet); f != NoFault || string(r.Options(packet)) != "\x00\x03\x00\x01x" {
		t.Errorf("request with an option: got fault %d, options %q; want 0, NSID", f, r.Options(packet))
	}
	packet = AppendRequest(nil, 1, 0, []byte("\x00"), TypeA)
	if f := r.Parse(packet); f != NoFault || len(r.Options(packet)) != 0 {
		t.Errorf("request without options after one with an option: got fault %d, options %q; want 0, none", f, r.Options(packet))
	}
}

func TestEditingAllocations(t *testing.T) {
	a := addressed(OwnerIsQuestion, OwnerIsQuestion, OwnerIsQuestion)
	n := testing.AllocsPerRun(100, func() {
		a.Rotate(1)
		a.Age(a.RecordsOffset(), 0)
		a.ClampTTL(a.RecordsOffset(), 0, 1000)
		_, _ = a.MinTTL()
		a.Walk(func(s Section, r Record) bool { return r.Type != TypeA })
	})
	if n != 0 {
		t.Errorf("editing an answer allocates %v times, want 0", n)
	}
}
