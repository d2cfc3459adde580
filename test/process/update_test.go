//go:build unix

package process

import (
	"fmt"
	"strings"

	"github.com/miekg/dns"
)

// update sends an UPDATE message (RFC 2136) and compares the reply:
// "example.org +tsig=k:AA==; have a.example.org. A; add a.example.org. 60 IN A 192.0.2.1 => NOERROR".
func (s *script) update(text string) error {
	ask, want, _ := strings.Cut(text, " => ")
	parts := strings.Split(ask, "; ")
	zone, words, _ := strings.Cut(parts[0], " ")
	q, err := s.question(zone + " SOA " + words)
	if err != nil {
		return err
	}

	q.m.Opcode, q.m.RecursionDesired = dns.OpcodeUpdate, false
	for _, part := range parts[1:] {
		if err := change(q.m, part); err != nil {
			return err
		}
	}
	return s.ask(q, want)
}

// change adds a prerequisite or a change to an UPDATE message.
func change(m *dns.Msg, text string) error {
	verb, rest, _ := strings.Cut(text, " ")
	if verb == "add" {
		rr, err := dns.NewRR(rest)
		if err == nil {
			m.Insert([]dns.RR{rr})
		}
		return err
	}

	name, qtype, _ := strings.Cut(rest, " ")
	records := []dns.RR{&dns.ANY{Hdr: dns.RR_Header{Name: name, Rrtype: dns.StringToType[qtype]}}}
	switch verb {
	case "have":
		m.RRsetUsed(records)
	case "havenot":
		m.RRsetNotUsed(records)
	case "delete":
		m.RemoveRRset(records)
	case "deleteall":
		m.RemoveName(records)
	default:
		return fmt.Errorf("unknown change %q", text)
	}
	return nil
}
