// Package zonefile parses resource records in text form (RFC 1035 §5, RFC 3597) to
// wire form. ParseRecord parses one record, Read a whole zone file. Package
// miekg/dns does the parsing, because it knows every type; its types are not part of
// the API. Parsing is slow, so directives call this package at setup or in the
// background, not for each query.
package zonefile

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// A Record is one resource record.
type Record struct {
	Owner   wire.Name // lower case
	Spelled string    // the owner in wire form, in the text's spelling
	Type    wire.Type
	Class   wire.Class
	TTL     uint32
	RData   string // in wire form, with uncompressed names

	File string // the file that it was read from, or ""
	Line int    // the line in File where it begins
}

// Errorf returns an error with the file and line of the record.
func (r *Record) Errorf(format string, args ...any) error {
	return &Error{r.File, r.Line, fmt.Errorf(format, args...)}
}

// ParseRecord parses one record. Relative names are completed with origin, and ttl is
// the TTL of a record without one. Text with no record, with several records, or with
// a directive is an error.
func ParseRecord(text string, origin wire.Name, ttl uint32) (Record, error) {
	text = strings.TrimLeft(text, " \t\r\n")
	if strings.HasPrefix(strings.TrimLeft(dropped.Replace(text), " \t"), "$") {
		return Record{}, errors.New("want a record, got a directive")
	}

	// Text after the record is an error, but $GENERATE could take long to expand first.
	if strings.Contains(strings.TrimRight(text, "\r\n"), "\n") && countGenerate(dropped.Replace(text)) > 0 {
		return Record{}, errHidden
	}

	p := dns.NewZoneParser(strings.NewReader(text+"\n"), origin.String(), "")
	p.SetDefaultTTL(ttl)
	rr, ok := p.Next()
	if err := p.Err(); err != nil {
		message, _ := splitError(err)
		return Record{}, errors.New(message)
	}
	if !ok {
		return Record{}, errors.New("want a record, got nothing")
	}
	if second, ok := p.Next(); ok || p.Err() != nil {
		return Record{}, fmt.Errorf("want one record, got more: %v", second)
	}
	return pack(rr, nil)
}

// Append adds the record to section s of a. If its owner is the query name or an
// ancestor of it, the owner gets the spelling of the query.
func (r *Record) Append(a *wire.Answer, s wire.Section) {
	a.Buf = a.AppendOwner(a.Buf, []byte(r.Spelled))
	r.AppendAs(a, "", s)
}

// AppendAs adds the record with another owner, for wire.AppendRecordHeader, to section s of a.
func (r *Record) AppendAs(a *wire.Answer, owner string, s wire.Section) {
	a.Buf = wire.AppendRecordHeader(a.Buf, owner, r.Type, r.TTL, len(r.RData))
	class := len(a.Buf) - 8 // before the TTL and the length
	a.Buf[class], a.Buf[class+1] = byte(r.Class>>8), byte(r.Class)
	a.AppendString(s, r.RData, 1)
}

// maxRR is the size of the largest record: 65535 bytes of RDATA, and the fields
// before it.
const maxRR = wire.MaxName + 10 + wire.MaxMessage

// pack returns rr in wire form. room is memory for it, which may be nil.
func pack(rr dns.RR, room []byte) (Record, error) {
	h := rr.Header()
	r := Record{Type: wire.Type(h.Rrtype), Class: wire.Class(h.Class), TTL: h.Ttl}
	if r.Type.IsMeta() {
		return r, fmt.Errorf("%s is not a record type", r.Type)
	}
	if h.Ttl > 1<<31-1 {
		return r, fmt.Errorf("TTL %d: at most 2147483647 is allowed", h.Ttl) // RFC 2181 §8
	}
	if h.Name == "" {
		return r, fmt.Errorf("%s record without an owner name", r.Type)
	}
	if lacksData(rr) {
		return r, fmt.Errorf("%s record without data", r.Type)
	}

	if room == nil {
		room = make([]byte, dns.Len(rr)+wire.MaxName)
	}
	if nsec3, ok := rr.(*dns.NSEC3); ok { // the parser counts 128 bytes and more wrong
		nsec3.SaltLength = uint8(len(nsec3.Salt) / 2)
	}
	end, err := dns.PackRR(rr, room, 0, nil, false)
	if err != nil {
		return r, fmt.Errorf("%s record: %s", r.Type, strings.TrimPrefix(err.Error(), "dns: "))
	}

	at, ok := wire.ReadRecord(room[:end], 0)
	if !ok {
		return r, fmt.Errorf("%s record: too long", r.Type)
	}

	// The library accepts digests of a wrong length, for example, with which clients reject the answer.
	var check wire.Answer
	if _, err := check.AppendValid(wire.Answers, room[:end], 0); err != nil {
		return r, fmt.Errorf("malformed %s record", r.Type)
	}
	r.Spelled, r.RData = string(room[:at.Head]), string(room[at.RData:at.Next])
	r.Owner = wire.Lower(r.Spelled)
	return r, nil
}

// lacksData reports whether rr has no RDATA, which only updates may lack (RFC 2136
// §2.4). An APL record may have an empty list (RFC 3123 §4), and numbers may be zero.
func lacksData(rr dns.RR) bool {
	switch rr.(type) {
	case *dns.APL, *dns.UID, *dns.GID, *dns.EUI48, *dns.EUI64, *dns.NID, *dns.L64:
		return false
	}
	known, ok := dns.TypeToRR[rr.Header().Rrtype]
	if !ok {
		return false
	}
	empty := known()
	*empty.Header() = *rr.Header()
	return reflect.DeepEqual(rr, empty)
}

// position matches the end of the library's error messages.
var position = regexp.MustCompile(`^(?s)(.*) at line: (\d+):\d+$`)

// splitError returns the library's error message without file and line, and the
// line, or 0 if the message has none.
func splitError(err error) (message string, line int) {
	message = err.Error()
	if m := position.FindStringSubmatch(message); m != nil {
		message = m[1]
		_, _ = fmt.Sscan(m[2], &line)
	}
	if i := strings.Index(message, "dns: "); i >= 0 {
		message = message[i+len("dns: "):]
	}
	return message, line
}
