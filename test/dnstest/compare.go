package dnstest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// check returns the differences of a reply from the expectation, "" if there are none.
func (q *queryCase) check(reply []byte, proto string) string {
	if q.want.silence || reply == nil {
		switch {
		case q.want.silence && reply == nil:
			return ""
		case reply == nil:
			return "no reply"
		}
		return "want silence, got " + fmt.Sprintf("%x", reply)
	}

	m := new(dns.Msg)
	if err := m.Unpack(reply); err != nil {
		return fmt.Sprintf("unpacking the reply: %v: %x", err, reply)
	}

	wrong := q.envelope(reply, m, proto)
	got := q.print(reply, m)
	if !sameWords(q.want.header, got.header) {
		wrong = append(wrong, "the header")
	}

	for s, name := range []string{"answer", "authority", "additional"} {
		if !sameRecords(q.want.records[s], got.records[s], q.want.more[s], s == 0) {
			wrong = append(wrong, "the "+name+" section")
		}
	}

	if len(wrong) == 0 {
		return ""
	}
	return fmt.Sprintf("wrong: %s\nexpected:\n%sgot:\n%s", strings.Join(wrong, ", "), q.want.String(), got.String())
}

// envelope checks properties that every reply must have.
func (q *queryCase) envelope(reply []byte, m *dns.Msg, proto string) (wrong []string) {
	asked := binary.BigEndian.Uint16(q.packet[2:])
	flags := binary.BigEndian.Uint16(reply[2:])
	const opcode = 15 << 11
	if flags&wire.FlagQR == 0 {
		wrong = append(wrong, "no qr")
	}
	if (flags^asked)&(wire.FlagRD|opcode) != 0 {
		wrong = append(wrong, "rd or opcode differs from the query's")
	}
	if len(m.Question) > 0 {
		end := wire.HeaderLen + 4
		for n := reply[wire.HeaderLen:]; len(n) > 0 && n[0] != 0; n = n[1+int(n[0]):] {
			end += 1 + int(n[0])
		}
		if end++; end > len(q.packet) || !bytes.Equal(reply[wire.HeaderLen:end], q.packet[wire.HeaderLen:end]) {
			wrong = append(wrong, "the question differs from the query's")
		}
	}
	if limit := min(q.sizes, wire.MaxUDPReply); proto == "udp" && len(reply) > limit {
		wrong = append(wrong, fmt.Sprintf("%d bytes, more than the client's limit of %d", len(reply), limit))
	}
	return wrong
}

// print formats a reply as a script does.
func (q *queryCase) print(reply []byte, m *dns.Msg) expectation {
	e := expectation{header: q.flags(reply, m)}
	for s, records := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range records {
			if rr.Header().Rrtype != dns.TypeOPT {
				e.records[s] = append(e.records[s], strings.Join(strings.Fields(rr.String()), " "))
			}
		}
	}
	return e
}

func (e *expectation) String() string {
	if e.silence {
		return "silence\n"
	}
	var b strings.Builder
	fmt.Fprintln(&b, strings.Join(e.header, " "))
	for s, head := range []string{"", ";authority\n", ";additional\n"} {
		if len(e.records[s]) > 0 || e.more[s] {
			b.WriteString(head)
		}
		for _, r := range e.records[s] {
			fmt.Fprintln(&b, r)
		}
		if e.more[s] {
			fmt.Fprintln(&b, "...")
		}
	}
	return b.String()
}

// sameWords compares a response code and flags, which may be in any order.
func sameWords(want, got []string) bool {
	if len(want) != len(got) || want[0] != got[0] {
		return false
	}
	return slices.Equal(slices.Sorted(slices.Values(want[1:])), slices.Sorted(slices.Values(got[1:])))
}

// sameRecords compares two sections. If chains is true, CNAMEs at the start are
// compared in order.
func sameRecords(want, got []string, more, chains bool) bool {
	for chains && len(want) > 0 && isCNAME(want[0]) {
		if len(got) == 0 || !matches(want[0], got[0]) {
			return false
		}
		want, got = want[1:], got[1:]
	}
	// Match records without * first, so that a * does not match their records.
	got, want = slices.Clone(got), slices.Clone(want)
	slices.SortStableFunc(want, func(a, b string) int { return strings.Count(a, "*") - strings.Count(b, "*") })
	for _, w := range want {
		i := slices.IndexFunc(got, func(g string) bool { return matches(w, g) })
		if i < 0 {
			return false
		}
		got = slices.Delete(got, i, i+1)
	}
	return len(got) == 0 || more
}

func isCNAME(record string) bool {
	fields := strings.Fields(record)
	return len(fields) > 3 && fields[3] == "CNAME"
}

// matches compares two records field by field; * matches any field.
func matches(want, got string) bool {
	if want == got {
		return true
	}
	w, g := strings.Fields(want), strings.Fields(got)
	return slices.EqualFunc(w, g, func(w, g string) bool { return w == "*" || w == g })
}
