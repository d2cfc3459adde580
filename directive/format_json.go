package directive

import (
	"bytes"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// appendObject appends the line of q to buf as a JSON object. Its keys, which the reference
// page of log describes, are stable.
func appendObject(buf []byte, q *dns.Query, metadata []piece) []byte {
	buf = append(buf, `{"time":"`...)
	buf = q.Start.UTC().AppendFormat(buf, "2006-01-02T15:04:05.000000Z07:00")

	c := q.Chain()
	buf = appendString(append(buf, `","server":`...), c.Server)
	buf = appendString(append(buf, `,"zone":`...), c.Zone)
	buf = appendString(append(buf, `,"view":`...), c.View)
	buf = q.Peer.Addr().AppendTo(append(buf, `,"remote":"`...))
	buf = strconv.AppendUint(append(buf, `","port":`...), uint64(q.Peer.Port()), 10)
	buf = append(buf, `,"local":"`...)
	if q.Local.IsValid() {
		buf = q.Local.Addr().AppendTo(buf)
	}

	buf = appendString(append(buf, `","proto":`...), q.Network().String())
	buf = strconv.AppendUint(append(buf, `,"id":`...), uint64(q.ID), 10)
	buf = strconv.AppendUint(append(buf, `,"opcode":`...), uint64(opcode(q)), 10)
	buf = appendString(append(buf, `,"class":`...), q.Class.String())
	buf = appendString(append(buf, `,"type":`...), q.Type.String())
	var text [4 * wire.MaxName]byte // an escape such as \046 has four bytes
	buf = appendString(append(buf, `,"name":`...), wire.AppendText(text[:0], q.Name()))
	buf = strconv.AppendBool(append(buf, `,"do":`...), q.DO)
	buf = strconv.AppendUint(append(buf, `,"bufsize":`...), uint64(maxReply(q)), 10)
	buf = strconv.AppendInt(append(buf, `,"size":`...), int64(len(q.Packet())), 10)
	return appendOutcome(buf, q, metadata)
}

// appendRecord appends the record of q that CoreDNS writes with -log-format=json. Its message is
// the line of the format.
func appendRecord(buf []byte, q *dns.Query, f *format) []byte {
	var line [1024]byte
	msg := f.append(line[:0], q)
	msg = bytes.TrimSuffix(bytes.TrimPrefix(msg, []byte(infoPrefix)), []byte("\n"))
	buf = appendMessage(buf, q.Start.Add(q.Elapsed), "INFO", msg, "log")

	buf = q.Peer.Addr().AppendTo(append(buf, `,"client_ip":"`...))
	buf = strconv.AppendUint(append(buf, `","client_port":`...), uint64(q.Peer.Port()), 10)
	var name [4 * wire.MaxName]byte // an escape such as \046 has four bytes
	buf = appendString(append(buf, `,"qname":`...), wire.AppendText(name[:0], q.Name()))
	buf = appendString(append(buf, `,"qtype":`...), q.Type.String())
	buf = appendString(append(buf, `,"qclass":`...), q.Class.String())
	buf = appendString(append(buf, `,"protocol":`...), q.Network().String())

	buf = strconv.AppendUint(append(buf, `,"id":`...), uint64(q.ID), 10)
	buf = strconv.AppendUint(append(buf, `,"opcode":`...), uint64(opcode(q)), 10)
	buf = strconv.AppendInt(append(buf, `,"request_size":`...), int64(len(q.Packet())), 10)
	buf = strconv.AppendBool(append(buf, `,"dnssec_ok":`...), q.DO)
	buf = strconv.AppendUint(append(buf, `,"bufsize":`...), uint64(maxReply(q)), 10)

	buf = appendRCode(append(buf, `,"rcode":`...), q)
	buf = strconv.AppendInt(append(buf, `,"response_size":`...), int64(len(q.Reply())), 10)
	buf = strconv.AppendFloat(append(buf, `,"duration_seconds":`...), max(0, q.Elapsed).Seconds(), 'f', -1, 64)
	return append(buf, "}\n"...)
}

// appendMessage appends the members of a record that all records have, without the closing brace.
func appendMessage(buf []byte, at time.Time, level string, msg []byte, plugin string) []byte {
	buf = at.UTC().AppendFormat(append(buf, `{"time":"`...), time.RFC3339Nano)
	buf = appendString(append(buf, `","level":`...), level)
	buf = appendString(append(buf, `,"msg":`...), msg)
	return appendString(append(buf, `,"plugin":`...), plugin)
}

// appendRCode appends the response code of q as a JSON value.
func appendRCode(buf []byte, q *dns.Query) []byte {
	if q.Dropped() {
		return append(buf, "null"...)
	}
	return appendString(buf, q.RCode.String())
}

// appendOutcome appends the second half of the object, which describes the
// reply.
func appendOutcome(buf []byte, q *dns.Query, metadata []piece) []byte {
	buf = appendRCode(append(buf, `,"rcode":`...), q)
	answers := uint64(q.Answer.Count[wire.Answers])
	if q.Dropped() {
		answers = 0
	}

	buf = append(appendFlags(append(buf, `,"rflags":[`...), q.Reply(), `"`), ']')
	buf = strconv.AppendInt(append(buf, `,"rsize":`...), int64(len(q.Reply())), 10)
	buf = strconv.AppendUint(append(buf, `,"answers":`...), answers, 10)
	buf = strconv.AppendFloat(append(buf, `,"duration":`...), max(0, q.Elapsed).Seconds(), 'f', -1, 64)
	buf = appendString(append(buf, `,"by":`...), q.AnsweredBy())
	if q.Err != nil {
		buf = appendString(append(buf, `,"error":`...), q.Err.Error())
	}

	for i := range metadata {
		buf = append(buf, [...]string{`,"metadata":{`, `,`}[min(i, 1)]...)
		buf = append(appendString(buf, metadata[i].text), ':')
		if value := metadata[i].read(q); value != "" {
			buf = appendString(buf, value)
		} else {
			buf = append(buf, "null"...)
		}
	}
	if len(metadata) > 0 {
		buf = append(buf, '}')
	}
	return append(buf, "}\n"...)
}

// appendString appends a JSON string (RFC 8259 §7). Invalid UTF-8 becomes
// U+FFFD.
func appendString[S string | []byte](buf []byte, s S) []byte {
	const hex = "0123456789abcdef"
	buf = append(buf, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			buf = append(buf, '\\', c)
		case c < ' ' || c == 0x7F:
			buf = append(buf, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			buf = append(buf, c)
		default:
			r, size := utf8.DecodeRune([]byte(s[i:min(i+utf8.UTFMax, len(s))]))
			buf = utf8.AppendRune(buf, r)
			i += size
			continue
		}
		i++
	}
	return append(buf, '"')
}
