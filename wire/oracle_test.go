package wire

import (
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// The oracle is github.com/miekg/dns: messages are built with it, and what this
// package writes is read with it.

func record(t testing.TB, s string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return rr
}

// message packs a reply to question (a name, of type A) with these records,
// each by its section and text.
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

// unpack reads a message back.
func unpack(t testing.TB, b []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(b); err != nil {
		t.Fatalf("unpacking %x: %v", b, err)
	}
	return m
}

// onWire is a name in wire form, in its spelling.
func onWire(t testing.TB, name string) []byte {
	t.Helper()
	b := make([]byte, 256)
	n, err := dns.PackDomainName(name, b, 0, nil, false)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b[:n]
}

// question is the question for name, type A, class IN.
func question(t testing.TB, name string) []byte {
	t.Helper()
	return append(onWire(t, name), 0, 1, 0, 1)
}

// imported takes all records of a message over into an answer.
func imported(t testing.TB, msg []byte) *Answer {
	t.Helper()
	a, err := importAll(msg)
	if err != nil {
		t.Fatalf("importing %x: %v", msg, err)
	}
	return a
}

// importAll takes all records of a message with one question over into an
// answer to the same question.
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

// sealed is a's message with a header.
func sealed(a *Answer) []byte {
	PutHeader(a.Buf, 1, FlagQR, 1, a.Count, 0)
	return a.Buf
}

// zone is the three sections of a message, one record in a line, as text: what
// the message means, spelling included.
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
