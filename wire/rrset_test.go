package wire

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

func TestMoveToFront(t *testing.T) {
	const q, other = OwnerIsQuestion, "\x01b\x00"
	for _, c := range []struct {
		owners []string
		odd    bool // moves records with odd addresses to the front; otherwise the third of each RRset
		want   string
		runs   string
	}{
		{[]string{q, q, q, q}, true, "1/101 3/103 0/100 2/102", "4"},
		{[]string{q, q, q, q}, false, "2/102 0/100 1/101 3/103", "4"},
		{[]string{q, other, other, q}, true, "0/100 1/101 2/102 3/103", "2"},
		{[]string{q, q, other, other}, true, "1/101 0/100 3/103 2/102", "22"},
		{[]string{q}, true, "0/100", ""},
		{nil, true, "", ""},
	} {
		a := addressed(c.owners...)
		size, runs := len(a.Buf), ""
		a.RRsets(func(run RRset) {
			runs += fmt.Sprint(run.Len)
			a.MoveToFront(run, func(i int, r Record) bool {
				if c.odd {
					return a.Buf[r.Next-1]%2 == 1
				}
				return i == 2
			})
		})
		if got := last(a); got != c.want || runs != c.runs || len(a.Buf) != size {
			t.Errorf("%q: got %s in runs of %s, want %s in %s", c.owners, got, runs, c.want, c.runs)
		}
	}
}

func TestMoveToFrontAllocations(t *testing.T) {
	a := addressed(OwnerIsQuestion, OwnerIsQuestion, OwnerIsQuestion)
	if n := testing.AllocsPerRun(100, func() {
		a.RRsets(func(run RRset) { a.MoveToFront(run, func(i int, _ Record) bool { return i == 1 }) })
	}); n != 0 {
		t.Errorf("MoveToFront allocates %v times, want 0", n)
	}
}

// A Rename also sees the target names of SVCB and HTTPS records.
func TestRenameServiceTargets(t *testing.T) {
	const old, other = "\x03old\x00", "\x07another\x00"
	for _, typ := range []Type{TypeSVCB, TypeHTTPS} {
		from := addressed()
		rdata := "\x00\x01" + old + "\x00\x01\x00\x03\x02h2"
		from.Buf = append(AppendRecordHeader(from.Buf, OwnerIsQuestion, typ, 5, len(rdata)), rdata...)
		from.Count[Answers]++
		to := addressed()
		if _, err := to.AppendRenamed(Answers, from.Buf, from.RecordsOffset(), func(name []byte, _ Type, in bool) []byte {
			if in && string(name) == old {
				return []byte(other)
			}
			return name
		}); err != nil {
			t.Fatal(err)
		}
		r, ok := ReadRecord(to.Buf, to.RecordsOffset())
		if got := string(to.Buf[r.RData:r.Next]); !ok || got != "\x00\x01"+other+"\x00\x01\x00\x03\x02h2" {
			t.Errorf("%v: got RDATA %q, want the target another.", typ, got)
		}
	}
}

func TestReadName(t *testing.T) {
	a := addressed(OwnerIsQuestion, "\x01B\x00")
	a.Walk(func(_ Section, r Record) bool {
		want := "\x01a\x00"
		if r.Owner > a.RecordsOffset() {
			want = "\x01B\x00"
		}
		if name, next, ok := ReadName(nil, a.Buf, r.Owner); string(name) != want || next != r.Head || !ok {
			t.Errorf("got %q, %d, %v; want %q, %d", name, next, ok, want, r.Head)
		}
		return true
	})
	if _, _, ok := ReadName(nil, a.Buf, len(a.Buf)); ok {
		t.Error("ReadName behind the end: got ok true, want false")
	}
	if got := AppendLower(nil, []byte("\x03aBc\x00")); string(got) != "\x03abc\x00" {
		t.Errorf("AppendLower: got %q, want abc.", got)
	}
}

// An RRset whose records differ in size is rotated, too.
func TestRotateUneven(t *testing.T) {
	a := addressed(OwnerIsQuestion, OwnerIsQuestion)
	a.Buf = append(AppendRecordHeader(a.Buf, OwnerIsQuestion, TypeMX, 7, 3), 0, 1, 0)
	a.Buf = append(AppendRecordHeader(a.Buf, OwnerIsQuestion, TypeMX, 8, 5), 0, 2, 1, 'm', 0)
	a.Buf = append(AppendRecordHeader(a.Buf, OwnerIsQuestion, TypeMX, 9, 3), 0, 3, 0)
	a.Count[Answers] += 3
	var got []string
	a.Rotate(2)
	a.Walk(func(_ Section, r Record) bool {
		got = append(got, fmt.Sprintf("%v/%d", r.Type, r.TTL(a.Buf)))
		return true
	})
	if text := fmt.Sprint(got); text != "[A/100 A/101 MX/9 MX/7 MX/8]" {
		t.Errorf("got %s, want [A/100 A/101 MX/9 MX/7 MX/8]", text)
	}
}

// CNAME and DNAME records, with their signatures, come before the others, in their order.
func TestAliasesFirst(t *testing.T) {
	const cname, dname = "\x00\x05", "\x00\x27" // the types that a signature covers
	type record struct {
		typ   Type
		rdata string
	}
	a1, a2 := record{TypeA, "\x01\x02\x03\x04"}, record{TypeA, "\x01\x02\x03\x05"}
	c1, c2, d := record{TypeCNAME, "\x01c\x00"}, record{TypeCNAME, "\x01d\x00"}, record{TypeDNAME, "\x01e\x00"}
	cSig, dSig, aSig := record{TypeRRSIG, cname}, record{TypeRRSIG, dname}, record{TypeRRSIG, "\x00\x01"}
	for _, c := range [][2][]record{
		{{a1, c1}, {c1, a1}},
		{{c1, a1, a2}, {c1, a1, a2}},
		{{a1, a2, c2, c1}, {c2, c1, a1, a2}},
		{{a1, aSig, c1, cSig, d, dSig}, {c1, cSig, d, dSig, a1, aSig}},
		{{c1, cSig, c2, cSig, a1, aSig}, {c1, cSig, c2, cSig, a1, aSig}},
		{{a1, c1, a2, c2}, {c1, c2, a1, a2}},
		{{a1, aSig}, {a1, aSig}},
		{nil, nil},
	} {
		for name, reorder := range map[string]func(*Answer){
			"AliasesFirst": func(a *Answer) { a.AliasesFirst() }, "Rotate": func(a *Answer) { a.Rotate(0) },
		} {
			a := addressed()
			for _, r := range c[0] {
				a.Buf = append(AppendRecordHeader(a.Buf, OwnerIsQuestion, r.typ, 5, len(r.rdata)), r.rdata...)
				a.Count[Answers]++
			}
			a.Buf = append(AppendRecordHeader(a.Buf, OwnerIsQuestion, TypeCNAME, 5, 1), 0) // additional
			a.Count[Additional]++
			reorder(a)
			var got []record
			a.Walk(func(s Section, r Record) bool {
				if s == Answers {
					got = append(got, record{r.Type, string(a.Buf[r.RData:r.Next])})
				}
				return true
			})
			if !slices.Equal(got, c[1]) || a.Count != [3]uint16{uint16(len(c[0])), 0, 1} {
				t.Errorf("%s of %v: got %v, counts %v, want %v", name, c[0], got, a.Count, c[1])
			}
		}
	}
}

// A CNAME record behind an address, in a section whose end is malformed, is left where it is.
func TestRotateMalformedEnd(t *testing.T) {
	a := answerOf(t, []string{"w.example. 5 IN A 192.0.2.1", "a.example. 5 IN CNAME w.example."}, nil, nil)
	a.Count[Answers]++
	before := bytes.Clone(a.Buf)
	if a.Rotate(1); !bytes.Equal(a.Buf, before) {
		t.Errorf("Rotate: got\n%x, want\n%x", a.Buf, before)
	}
}

// Two addresses before their CNAME record are in each order for half of the numbers.
func TestRotateLateAlias(t *testing.T) {
	first := map[string]int{}
	for n := range uint32(4) {
		a := answerOf(t, []string{"a.example. 5 IN A 192.0.2.1", "a.example. 5 IN A 192.0.2.2", "b.example. 5 IN CNAME a.example."}, nil, nil)
		a.Rotate(n&1 | n>>1<<16)
		a.Walk(func(_ Section, r Record) bool {
			if r.Type == TypeA {
				first[string(a.Buf[r.RData:r.Next])]++
			}
			return r.Type != TypeA
		})
	}
	if len(first) != 2 || first["\xc0\x00\x02\x01"] != 2 {
		t.Errorf("first addresses: got %v, want each twice", first)
	}
}
