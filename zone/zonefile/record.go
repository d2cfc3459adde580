// Package zonefile turns resource records as text (RFC 1035 §5, RFC 3597) into
// bytes: one record for the template directive, whole files for the file
// directive. The reading is done by miekg/dns, which knows every type; what
// comes out is wire form, and no type of that library. It runs when a
// configuration is read, or off the path of queries.
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
	Spelled string    // the owner in wire form as it was written
	Type    wire.Type
	Class   wire.Class
	TTL     uint32
	RData   string // names in it written out

	File string // that it was read from, if it was
	Line int    // where it begins there
}

// Errorf makes an error that begins with where the record was read from.
func (r *Record) Errorf(format string, args ...any) error {
	return &Error{r.File, r.Line, fmt.Errorf(format, args...)}
}

// ParseRecord reads one record. Names that are not absolute end in origin; ttl
// is that of a record which gives none. Text of no record, or of several, is an
// error, and so are directives.
func ParseRecord(text string, origin wire.Name, ttl uint32) (Record, error) {
	text = strings.TrimLeft(text, " \t\r\n")
	if strings.HasPrefix(text, "$") {
		return Record{}, errors.New("want a record, got a directive")
	}
	p := dns.NewZoneParser(strings.NewReader(text+"\n"), origin.String(), "")
	p.SetDefaultTTL(ttl)
	rr, ok := p.Next()
	if err := p.Err(); err != nil {
		message, _ := plain(err)
		return Record{}, errors.New(message)
	}
	if !ok {
		return Record{}, errors.New("want a record, got nothing")
	}
	if more, ok := p.Next(); ok || p.Err() != nil {
		return Record{}, fmt.Errorf("want one record, got more: %v", more)
	}
	return pack(rr, nil)
}

// Append adds the record to section s of a. If its owner is the question's
// name, or one that the question ends in, it takes the question's spelling.
func (r *Record) Append(a *wire.Answer, s wire.Section) {
	a.Buf = a.AppendOwner(a.Buf, []byte(r.Spelled))
	class := len(a.Buf) + 2
	a.Buf = wire.AppendRecordHeader(a.Buf, "", r.Type, r.TTL, len(r.RData))
	a.Buf[class], a.Buf[class+1] = byte(r.Class>>8), byte(r.Class)
	a.AppendString(s, r.RData, 1)
}

// maxRR is the largest record: RDATA of 65535 bytes, and what stands before it.
const maxRR = wire.MaxName + 10 + wire.MaxMessage

// pack gives rr as bytes. room is memory for it, which may be nil.
func pack(rr dns.RR, room []byte) (Record, error) {
	h := rr.Header()
	r := Record{Type: wire.Type(h.Rrtype), Class: wire.Class(h.Class), TTL: h.Ttl}
	if meta(h.Rrtype) {
		return r, fmt.Errorf("%s is no type of a record", r.Type)
	}
	if h.Ttl > 1<<31-1 {
		return r, fmt.Errorf("TTL %d: at most 2147483647 is allowed", h.Ttl) // RFC 2181 §8
	}
	if h.Name == "" {
		return r, fmt.Errorf("%s record without an owner name", r.Type)
	}
	if bare(rr) {
		return r, fmt.Errorf("%s record without data", r.Type)
	}
	if room == nil {
		room = make([]byte, dns.Len(rr)+wire.MaxName)
	}
	end, err := dns.PackRR(rr, room, 0, nil, false)
	if err != nil {
		return r, fmt.Errorf("%s record: %s", r.Type, strings.TrimPrefix(err.Error(), "dns: "))
	}
	at, ok := wire.ReadRecord(room[:end], 0)
	if !ok {
		return r, fmt.Errorf("%s record: too long", r.Type)
	}
	r.Spelled, r.RData = string(room[:at.Head]), string(room[at.RData:at.Next])
	r.Owner = wire.Lower(r.Spelled)
	return r, nil
}

// meta says which types stand in questions and messages alone (RFC 6895 §3.1).
func meta(t uint16) bool {
	return t == 0 || t == dns.TypeOPT || 128 <= t && t <= 255
}

// bare says that rr has nothing behind its type, as only updates have it (RFC
// 2136 §2.4). A list of address prefixes may be empty (RFC 3123 §4).
func bare(rr dns.RR) bool {
	if _, ok := rr.(*dns.APL); ok {
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

// position is how the library ends its messages.
var position = regexp.MustCompile(`^(?s)(.*) at line: (\d+):\d+$`)

// plain is the library's message without file and line, and the line; 0 if it
// has none.
func plain(err error) (message string, line int) {
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
