package builtin

import (
	"testing"

	mdns "github.com/miekg/dns"
)

// A message with a header and without one whole question gets FORMERR over each transport, as
// from BIND and CoreDNS, and the next query on it an answer.
// See CVE-2026-82399 in docs/reference/advisories.md.
func TestMalformedMessageGetsFormErr(t *testing.T) {
	s := serveEncrypted(t, everyScheme+` {
    tls cert.pem key.pem
    whoami
}`)
	const question = "\x01a\x07example\x00\x00\x01\x00\x01"
	header := func(flags, questions, additional byte) string {
		return string([]byte{0, 0, flags, 0, 0, questions, 0, 0, 0, 0, 0, additional})
	}

	for name, send := range s.transports() {
		for _, c := range []struct {
			message, packet string
			edns            bool
		}{
			{"the header alone", header(1, 0, 0), false},
			{"a question that is not counted", header(1, 0, 0) + question, false},
			{"a question that is missing", header(1, 1, 0), false},
			{"a question that is cut", header(1, 1, 0) + question[:len(question)-1], false},
			{"a name that ends in a pointer", header(1, 1, 0) + "\x01a\xC0\x0C\x00\x01\x00\x01", false},
			{"two questions", header(1, 2, 0) + question + question, false},
			{"an OPT record alone", header(1, 0, 1) + "\x00\x00\x29\x04\xD0\x00\x00\x00\x00\x00\x00", true},
			{"NOTIFY without a question", header(4<<3, 0, 0), false},
		} {
			r, err := send([]byte(c.packet))
			if err != nil || r.Rcode != mdns.RcodeFormatError || !r.Response || (r.IsEdns0() != nil) != c.edns {
				t.Errorf("%s over %s: got %v, error %v; want FORMERR, with EDNS %v", c.message, name, r, err, c.edns)
			}
		}
		if r, err := send(packed(t, "a.example.")); err != nil || r.Rcode != mdns.RcodeSuccess {
			t.Errorf("a query over %s after them: got %v, error %v; want an answer", name, r, err)
		}
	}
}
