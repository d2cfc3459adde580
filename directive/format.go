package directive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// The names of CoreDNS's own formats. The dash stands for the user name of a web
// server's log.
const (
	commonFormat = `{remote}:{port} - {>id} "{type} {class} {name} {proto} {size} {>do} {>bufsize}" ` +
		`{rcode} {>rflags} {rsize} {duration}`
	combinedFormat = commonFormat + ` "{>opcode}"`
	jsonFormat     = "{json}"
)

// A format describes a line of the query log, or the extra text of dnstap: text and
// placeholders, or a JSON object.
type format struct {
	pieces []piece
	json   bool // the pieces are the members of "metadata"
}

// A piece is text, a placeholder or a metadata value.
type piece struct {
	kind int    // an index in placeholders, isText or isMetadata
	text string // the text, or the metadata key without its first slash

	read func(q *dns.Query) string // for isMetadata
}

const (
	isText     = -1
	isMetadata = -2
)

// placeholders lists the placeholders in the order of the cases in
// piece.append.
var placeholders = [...]string{
	"{type}", "{name}", "{class}", "{proto}", "{remote}", "{port}", "{local}", "{size}", "{rcode}", "{rsize}",
	"{duration}", "{>id}", "{>opcode}", "{>do}", "{>bufsize}", "{>rflags}",
}

// placeholder matches a placeholder, but not the braces around a JSON object. A
// metadata key contains a slash and the characters of Kubernetes labels.
var placeholder = regexp.MustCompile(`\{>?[a-zA-Z][-a-zA-Z0-9_]*\}|\{/[-a-zA-Z0-9_./]*\}`)

func parseFormat(text string) (*format, error) {
	if rest, ok := strings.CutPrefix(text, jsonFormat); ok {
		return parseJSONFormat(rest)
	}
	text = strings.NewReplacer("{common}", commonFormat, "{combined}", combinedFormat).Replace(text)
	return parseText(infoPrefix + text + "\n")
}

// infoPrefix begins the lines of the query log.
const infoPrefix = "[INFO] "

// parseText reads a text with placeholders.
func parseText(text string) (*format, error) {
	f, at := &format{}, 0
	for _, m := range placeholder.FindAllStringIndex(text, -1) {
		p, err := parsePlaceholder(text[m[0]:m[1]])
		if err != nil {
			return nil, err
		}
		f.pieces = append(f.pieces, piece{text: text[at:m[0]], kind: isText}, p)
		at = m[1]
	}
	f.pieces = append(f.pieces, piece{text: text[at:], kind: isText})
	return f, nil
}

// parseJSONFormat reads the words after {json}.
func parseJSONFormat(rest string) (*format, error) {
	f := &format{json: true}
	for _, word := range strings.Fields(rest) {
		p, err := parsePlaceholder(word)
		if err != nil || p.kind != isMetadata {
			return nil, fmt.Errorf(
				"want only metadata placeholders after {json}, such as {/kubernetes/namespace}, got %q", word)
		}
		f.pieces = append(f.pieces, p)
	}
	return f, nil
}

func parsePlaceholder(text string) (piece, error) {
	if key, ok := strings.CutPrefix(text, "{/"); ok {
		key = strings.TrimSuffix(key, "}")
		if plugin, name, ok := strings.Cut(key, "/"); !ok || plugin == "" || name == "" {
			return piece{}, fmt.Errorf(
				"%s is not a metadata placeholder: want {/PLUGIN/NAME}, such as {/kubernetes/namespace}", text)
		}
		return piece{text: key, kind: isMetadata}, nil
	}

	if text == jsonFormat {
		return piece{}, errors.New("{json} must be at the beginning of the format")
	}
	kind := slices.Index(placeholders[:], text)
	if kind < 0 {
		return piece{}, fmt.Errorf("unknown placeholder %s; want {common}, {combined}, {json}, %s or {/PLUGIN/NAME}",
			text, strings.Join(placeholders[:], ", "))
	}
	return piece{kind: kind}, nil
}

// bindMetadata looks up the providers of the format's metadata in b.
func (f *format) bindMetadata(b *config.Block) {
	if f == nil {
		return
	}
	for i := range f.pieces {
		if p := &f.pieces[i]; p.kind == isMetadata {
			p.read = b.Metadata(p.text)
		}
	}
}

// append appends the line of q to buf.
func (f *format) append(buf []byte, q *dns.Query) []byte {
	if f.json {
		return appendObject(buf, q, f.pieces)
	}
	for i := range f.pieces {
		buf = f.pieces[i].append(buf, q)
	}
	return buf
}

// append is a switch, since buf, on the stack of the caller, would escape to a function value.
func (p *piece) append(buf []byte, q *dns.Query) []byte {
	switch p.kind {
	case isText:
		return append(buf, p.text...)
	case isMetadata:
		return appendMetadata(buf, p.read(q))

	// The query.
	case 0:
		return append(buf, q.Type.String()...)
	case 1:
		return wire.AppendText(buf, q.Name())
	case 2:
		return append(buf, q.Class.String()...)
	case 3:
		return append(buf, q.Network().String()...)
	case 4:
		return appendHost(buf, q.Peer.Addr())
	case 5:
		return strconv.AppendUint(buf, uint64(q.Peer.Port()), 10)
	case 6:
		return appendHost(buf, q.Local.Addr())
	case 7:
		return strconv.AppendInt(buf, int64(len(q.Packet())), 10)

	// The reply.
	case 8:
		if q.Dropped() {
			return append(buf, '-')
		}
		return append(buf, q.RCode.String()...)
	case 9:
		return strconv.AppendInt(buf, int64(len(q.Reply())), 10)
	case 10:
		return append(strconv.AppendFloat(buf, q.Elapsed.Seconds(), 'f', -1, 64), 's')

	// The header and EDNS.
	case 11:
		return strconv.AppendUint(buf, uint64(q.ID), 10)
	case 12:
		return strconv.AppendUint(buf, uint64(opcode(q)), 10)
	case 13:
		return strconv.AppendBool(buf, q.DO)
	case 14:
		return strconv.AppendUint(buf, uint64(maxReply(q)), 10)
	default:
		return appendFlags(buf, q.Reply(), "")
	}
}

func opcode(q *dns.Query) uint16 { return q.Flags >> 11 & 15 }

// maxReply returns the size of the largest reply that q's client accepts.
func maxReply(q *dns.Query) uint16 {
	if q.Proto == dns.TCP {
		return wire.MaxMessage
	}
	return q.UDPSize
}

func appendHost(buf []byte, a netip.Addr) []byte {
	if a.Is6() {
		return append(a.AppendTo(append(buf, '[')), ']')
	}
	return a.AppendTo(buf)
}

// appendMetadata appends a value with control characters escaped: clients may
// choose part of it, and it must not begin a new line.
func appendMetadata(buf []byte, value string) []byte {
	if value == "" {
		return append(buf, '-')
	}
	for i := range len(value) {
		c := value[i]
		if c < ' ' || c == 0x7F {
			buf = append(buf, '\\', '0'+c/100, '0'+c/10%10, '0'+c%10)
		} else {
			buf = append(buf, c)
		}
	}
	return buf
}

// appendFlags appends the flags of a reply with quote around each. A dropped
// query has none.
func appendFlags(buf, reply []byte, quote string) []byte {
	if len(reply) < wire.HeaderLen {
		if quote == "" {
			return append(buf, '-')
		}
		return buf
	}
	flags := binary.BigEndian.Uint16(reply[2:])
	for i, f := range replyFlags {
		if flags&f.bit != 0 {
			if i > 0 { // every reply has QR
				buf = append(buf, ',')
			}
			buf = append(buf, quote...)
			buf = append(buf, f.name...)
			buf = append(buf, quote...)
		}
	}
	return buf
}

// replyFlags are the flags of a header, from the first bit on (RFC 1035 §4.1.1, RFC 4035 §3).
var replyFlags = [...]struct {
	bit  uint16
	name string
}{
	{wire.FlagQR, "qr"}, {wire.FlagAA, "aa"}, {wire.FlagTC, "tc"}, {wire.FlagRD, "rd"},
	{wire.FlagRA, "ra"}, {1 << 6, "z"}, {wire.FlagAD, "ad"}, {wire.FlagCD, "cd"},
}
