package dnstest

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// A queryCase is a query of a script and its expected reply.
type queryCase struct {
	at     string // file:line
	text   string // the line without "? "
	packet []byte // the query, with ID 0
	only   string // "udp", "tcp" or ""
	sizes  int    // the client's UDP payload size
	want   expectation

	first, last int // line numbers of the expectation within the part, for -update
}

// An expectation is a reply as a script describes it.
type expectation struct {
	silence bool
	header  []string // the response code, then the flags in the order of flagWords
	records [3][]string
	more    [3]bool
}

// flagWords are the words for the bits of the header.
var flagWords = []struct {
	word string
	bit  uint16
}{
	{"aa", wire.FlagAA}, {"tc", wire.FlagTC}, {"ra", wire.FlagRA}, {"z", 1 << 6}, {"ad", wire.FlagAD},
	{"cd", wire.FlagCD},
}

// parseQueries parses a part that starts at the given line of file.
func parseQueries(file, data string, line int) (cases []*queryCase, err error) {
	var q *queryCase
	section := 0
	for i, text := range strings.Split(strings.TrimSuffix(data, "\n"), "\n") {
		at := fmt.Sprintf("%s:%d", file, line+i)
		text = strings.TrimSpace(text)
		switch {
		case text == "" || strings.HasPrefix(text, "#"):
			continue
		case strings.HasPrefix(text, "?"):
			q = &queryCase{at: at, text: strings.TrimSpace(text[1:]), first: i + 1, last: i + 1}
			if err := q.parse(); err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			cases, section = append(cases, q), 0
			continue
		case q == nil:
			return nil, fmt.Errorf("%s: want a query, got %q", at, text)
		}

		q.last = i + 1
		if err := q.expect(text, &section); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
	}

	for _, q := range cases {
		if q.want.header == nil && !q.want.silence {
			return nil, fmt.Errorf("%s: want an expected reply after the query", q.at)
		}
	}
	return cases, nil
}

// expect parses one line of an expectation.
func (q *queryCase) expect(text string, section *int) error {
	w := &q.want
	switch {
	case w.silence:
		return fmt.Errorf("want no line after silence, got %q", text)
	case text == "silence" && w.header == nil:
		w.silence = true
	case w.header == nil:
		w.header = strings.Fields(text)
	case text == ";answer":
		*section = 0
	case text == ";authority":
		*section = 1
	case text == ";additional":
		*section = 2
	case text == "...":
		w.more[*section] = true
	default:
		record, err := canonical(text)
		if err != nil {
			return err
		}
		w.records[*section] = append(w.records[*section], record)
	}
	return nil
}

// canonical formats a record as the DNS library does, with one space between
// fields. A record with a * is not parsed.
func canonical(text string) (string, error) {
	fields := strings.Fields(text)
	if slices.Contains(fields, "*") {
		return strings.Join(fields, " "), nil
	}
	rr, err := dns.NewRR(text)
	if err != nil || rr == nil {
		return "", fmt.Errorf("not a record: %q: %w", text, cmp.Or(err, errors.New("it is empty or a comment")))
	}
	if len(fields) < 4 || fields[1] != strconv.Itoa(int(rr.Header().Ttl)) {
		return "", fmt.Errorf("want a record with name, TTL, class and type, got %q", text)
	}
	return strings.Join(strings.Fields(rr.String()), " "), nil
}

// parse packs the query.
func (q *queryCase) parse() error {
	words := strings.Fields(q.text)
	if len(words) < 2 {
		return fmt.Errorf("want a name and a type, got %q", q.text)
	}

	if words[0] == "hex" {
		digits := words[1:]
		for len(digits) > 0 && strings.HasPrefix(digits[len(digits)-1], "+") {
			if err := q.option(digits[len(digits)-1], nil, nil); err != nil {
				return err
			}
			digits = digits[:len(digits)-1]
		}

		var err error
		q.sizes = wire.MinUDPSize
		if q.packet, err = hex.DecodeString(strings.Join(digits, "")); err == nil && len(q.packet) < 2 {
			err = fmt.Errorf("want a packet with an ID, got %d bytes", len(q.packet))
		}
		return err
	}

	qtype, ok := dns.StringToType[words[1]]
	if n, err := strconv.ParseUint(strings.TrimPrefix(words[1], "TYPE"), 10, 16); err == nil {
		qtype, ok = uint16(n), true
	}
	if !ok {
		return fmt.Errorf("unknown type %q", words[1])
	}

	msg := new(dns.Msg)
	msg.Question = []dns.Question{{Name: dns.Fqdn(words[0]), Qtype: qtype, Qclass: dns.ClassINET}}
	msg.RecursionDesired = true
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	opt.SetUDPSize(wire.AdvertisedUDPSize)
	for _, word := range words[2:] {
		if class, ok := dns.StringToClass[word]; ok {
			msg.Question[0].Qclass = class
			continue
		}
		if err := q.option(word, msg, opt); err != nil {
			return err
		}
	}

	q.sizes = wire.MinUDPSize
	if len(msg.Extra) > 0 {
		q.sizes = max(q.sizes, int(opt.UDPSize()))
	}

	packet, err := msg.Pack()
	q.packet = packet
	return err
}

// option parses a word after the type. msg is nil if the script has the query in
// hexadecimal.
func (q *queryCase) option(word string, msg *dns.Msg, opt *dns.OPT) error {
	name, value, _ := strings.Cut(strings.TrimPrefix(word, "+"), "=")
	if name == "udp" || name == "tcp" {
		q.only = name
		return nil
	}

	if msg == nil {
		return fmt.Errorf("%s does not apply to a packet in hexadecimal", word)
	}

	number := func(bits int) (uint64, error) { return strconv.ParseUint(value, 10, bits) }
	var n uint64
	var err error
	switch word[0:1] + name {
	case "+norec":
		msg.RecursionDesired = false
		return nil
	case "+ad":
		msg.AuthenticatedData = true
		return nil
	case "+cd":
		msg.CheckingDisabled = true
		return nil
	case "+z":
		msg.Zero = true
		return nil
	case "+opcode":
		n, err = number(4)
		msg.Opcode = int(n)
		return err

	// The others need an OPT record.
	case "+edns":
		if value != "" {
			n, err = number(16)
			opt.SetUDPSize(uint16(n))
		}
	case "+do":
		opt.SetDo()
	case "+version":
		n, err = number(8)
		opt.SetVersion(uint8(n))
	case "+option":
		var o *dns.EDNS0_LOCAL
		o, err = parseOption(value)
		opt.Option = append(opt.Option, o)
	default:
		return fmt.Errorf("unknown word %q", word)
	}

	msg.Extra = []dns.RR{opt}
	return err
}

func parseOption(text string) (*dns.EDNS0_LOCAL, error) {
	code, data, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(code, 10, 16)
	if err != nil {
		return nil, err
	}
	o := &dns.EDNS0_LOCAL{Code: uint16(n)}
	o.Data, err = hex.DecodeString(data)
	return o, err
}

// flags returns the words for a reply's header, the response code first.
func (q *queryCase) flags(reply []byte, m *dns.Msg) []string {
	code := wire.RCode(m.Rcode)
	words := []string{code.String()}
	bits := binary.BigEndian.Uint16(reply[2:])
	for _, f := range flagWords {
		if bits&f.bit != 0 {
			words = append(words, f.word)
		}
	}
	if opt := m.IsEdns0(); opt != nil {
		words = append(words, fmt.Sprintf("edns=%d", opt.UDPSize()))
		if opt.Do() {
			words = append(words, "do")
		}
		if opt.Version() != 0 {
			words = append(words, fmt.Sprintf("version=%d", opt.Version()))
		}
		for _, o := range opt.Option {
			words = append(words, fmt.Sprintf("option=%d", o.Option()))
		}
	}
	return words
}
