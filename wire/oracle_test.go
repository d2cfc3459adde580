package wire

import (
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// The oracle is github.com/miekg/dns: tests build messages with it, and read with
// it what this package writes.

func record(t testing.TB, s string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return rr
}

// message packs a reply to a question of type A with records in text form, by
// section.
func message(t testing.TB, compress bool, question string, sections ...[]string) []byte {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(question, dns.TypeA)
	m.Response, m.Compress = true, compress
	for i, section := range sections {
		for _, s := range section {
			rr := record(t, s)
			switch Section(i) {
			case Answers:
				m.Answer = append(m.Answer, rr)
			case Authority:
				m.Ns = append(m.Ns, rr)
			case Additional:
				m.Extra = append(m.Extra, rr)
			}
		}
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// unpack parses a message.
func unpack(t testing.TB, b []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(b); err != nil {
		t.Fatalf("unpacking %x: %v", b, err)
	}
	return m
}

// onWire returns a name in wire form, in its own letter case.
func onWire(t testing.TB, name string) []byte {
	t.Helper()
	b := make([]byte, 256)
	n, err := dns.PackDomainName(name, b, 0, nil, false)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b[:n]
}

// question returns the question section for name, type A, class IN.
func question(t testing.TB, name string) []byte {
	t.Helper()
	return append(onWire(t, name), 0, 1, 0, 1)
}

// imported returns an answer with all records of a message.
func imported(t testing.TB, msg []byte) *Answer {
	t.Helper()
	a, err := importAll(msg)
	if err != nil {
		t.Fatalf("importing %x: %v", msg, err)
	}
	return a
}

// importAll returns an answer to the question of msg, with all its records.
func importAll(msg []byte) (*Answer, error) {
	end, ok := skip(msg, HeaderLen)
	if !ok || end+4 > len(msg) {
		return nil, errRecord
	}
	a := new(Answer)
	a.Reset(nil, msg[HeaderLen:end+4])
	off := end + 4
	for s := Answers; s <= Additional; s++ {
		n := int(msg[6+2*s])<<8 | int(msg[7+2*s])
		for range n {
			next, err := a.AppendRecord(s, msg, off)
			if err != nil {
				return nil, err
			}
			off = next
		}
	}
	return a, nil
}

// sealed adds a header to a's message and returns it.
func sealed(a *Answer) []byte {
	PutHeader(a.Buf, 1, FlagQR, 1, a.Count, 0)
	return a.Buf
}

// zone returns the three sections of a message as text, with one record a line.
func zone(m *dns.Msg) string {
	var b strings.Builder
	for i, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		b.WriteString([]string{"answers\n", "authority\n", "additional\n"}[i])
		for _, rr := range section {
			b.WriteString(rr.String() + "\n")
		}
	}
	return b.String()
}
