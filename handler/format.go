package handler

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// CoreDNS's own formats. The dash is where a web server logs a user's name.
const (
	commonFormat   = `{remote}:{port} - {>id} "{type} {class} {name} {proto} {size} {>do} {>bufsize}" {rcode} {>rflags} {rsize} {duration}`
	combinedFormat = commonFormat + ` "{>opcode}"`
)

// A format is a line of the query log: text and placeholders in turn.
type format []piece

// A piece is a placeholder, by its index in placeholders, or text.
type piece struct {
	text string
	what int // -1: the text
}

// placeholders are what a format may have, in the order of the cases of append.
var placeholders = [...]string{
	"{type}", "{name}", "{class}", "{proto}", "{remote}", "{port}", "{local}", "{size}", "{rcode}", "{rsize}",
	"{duration}", "{>id}", "{>opcode}", "{>do}", "{>bufsize}", "{>rflags}",
}

// placeholder is what looks like one: braces around a JSON object do not.
var placeholder = regexp.MustCompile(`\{[>/]?[a-zA-Z][-a-zA-Z0-9_/]*\}`)

func parseFormat(text string) (format, error) {
	text = strings.NewReplacer("{common}", commonFormat, "{combined}", combinedFormat).Replace(text)
	f, at := format{{"[INFO] ", -1}}, 0
	for _, m := range placeholder.FindAllStringIndex(text, -1) {
		what := slices.Index(placeholders[:], text[m[0]:m[1]])
		if what < 0 {
			return nil, fmt.Errorf("no such placeholder: %s; there are {common}, {combined}, %s", text[m[0]:m[1]], strings.Join(placeholders[:], ", "))
		}
		f = append(f, piece{text[at:m[0]], -1}, piece{"", what})
		at = m[1]
	}
	return append(f, piece{text[at:] + "\n", -1}), nil
}

// append writes the line of q behind buf.
func (f format) append(buf []byte, q *dns.Query) []byte {
	for _, p := range f {
		switch p.what {
		case -1:
			buf = append(buf, p.text...)
		case 0:
			buf = append(buf, q.Type.String()...)
		case 1:
			buf = wire.AppendText(buf, q.Name())
		case 2:
			buf = append(buf, q.Class.String()...)
		case 3:
			buf = append(buf, q.Proto.String()...)
		case 4:
			buf = appendHost(buf, q.Peer.Addr())
		case 5:
			buf = strconv.AppendUint(buf, uint64(q.Peer.Port()), 10)
		case 6:
			buf = appendHost(buf, q.Local.Addr())
		case 7:
			buf = strconv.AppendInt(buf, int64(len(q.Packet())), 10)
		case 8:
			if q.Dropped() {
				buf = append(buf, '-')
				continue
			}
			buf = append(buf, q.RCode.String()...)
		case 9:
			buf = strconv.AppendInt(buf, int64(len(q.Reply())), 10)
		case 10:
			buf = append(strconv.AppendFloat(buf, q.Elapsed.Seconds(), 'f', -1, 64), 's')
		case 11:
			buf = strconv.AppendUint(buf, uint64(q.ID), 10)
		case 12:
			buf = strconv.AppendUint(buf, uint64(q.Flags>>11&15), 10)
		case 13:
			buf = strconv.AppendBool(buf, q.DO)
		case 14:
			size := uint64(q.Size)
			if q.Proto == dns.TCP {
				size = wire.MaxMessage
			}
			buf = strconv.AppendUint(buf, size, 10)
		case 15:
			buf = appendFlags(buf, q.Reply())
		}
	}
	return buf
}

func appendHost(buf []byte, a netip.Addr) []byte {
	if a.Is6() {
		return append(a.AppendTo(append(buf, '[')), ']')
	}
	return a.AppendTo(buf)
}

// appendFlags writes the flags of a reply; there are none of a dropped query.
func appendFlags(buf, reply []byte) []byte {
	if len(reply) < wire.HeaderLen {
		return append(buf, '-')
	}
	flags := binary.BigEndian.Uint16(reply[2:])
	const z = 1 << 6
	for i, bit := range [...]uint16{wire.FlagQR, wire.FlagAA, wire.FlagTC, wire.FlagRD, wire.FlagRA, z, wire.FlagAD, wire.FlagCD} {
		if flags&bit != 0 {
			if i > 0 { // a reply has QR
				buf = append(buf, ',')
			}
			buf = append(buf, [...]string{"qr", "aa", "tc", "rd", "ra", "z", "ad", "cd"}[i]...)
		}
	}
	return buf
}

// wireText is a name in wire form as people write it.
func wireText(name []byte) string { return string(wire.AppendText(nil, name)) }
