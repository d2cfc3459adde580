// Package hostsfile parses text in the format of /etc/hosts.
package hostsfile

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/seamark/seamark/wire"
)

// MaxLine is the size of the longest line. A longer one is not a line of a hosts
// file.
const MaxLine = 1 << 20

// An Error describes an invalid line.
type Error struct {
	Line int
	Text string
}

// IsBlank reports whether c separates words. Lines of Windows end in "\r\n".
func IsBlank(c rune) bool { return c == ' ' || '\t' <= c && c <= '\r' }

const byteOrderMark = "\xef\xbb\xbf"

// Parse calls add for each address and each of its names in text. The name is in
// wire form and lower case, and is valid until add returns. Before a name of one
// label that does not end with a dot, parse adds the name with domain appended,
// unless domain is "". The zone of an address (fe80::1%eth0) is left out. Parse calls
// ignore for invalid lines and names, and continues.
func Parse(text string, domain wire.Name, add func(addr netip.Addr, name []byte), ignore func(Error)) {
	var room, longer [wire.MaxName]byte
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, byteOrderMark)) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if len(line) > MaxLine && strings.TrimFunc(line, IsBlank) != "" {
			ignore(Error{number, fmt.Sprintf("longer than %d bytes", MaxLine)})
			continue
		}

		var addr netip.Addr
		words := 0
		for word := range strings.FieldsFuncSeq(line, IsBlank) {
			if words++; words == 1 {
				var err error
				ip, _, _ := strings.Cut(word, "%") // a zone has a meaning only on one machine
				if addr, err = netip.ParseAddr(ip); err != nil {
					ignore(Error{number, fmt.Sprintf("%s is not an IP address", quote(word))})
					break
				}
				continue
			}

			name, wrong := AppendName(room[:0], word)
			if wrong != "" {
				ignore(Error{number, quote(word) + " " + wrong})
				continue
			}

			if domain != "" && simple(name) && !strings.HasSuffix(word, ".") {
				if long := append(append(longer[:0], name[:len(name)-1]...), domain...); len(long) <= wire.MaxName {
					add(addr.Unmap(), long)
				} else {
					ignore(Error{number, fmt.Sprintf("%s is too long with %v appended", quote(word), domain)})
				}
			}
			add(addr.Unmap(), name)
		}

		if words == 1 && addr.IsValid() {
			ignore(Error{number, "no name after the address"})
		}
	}
}

// quote quotes the beginning of a word.
func quote(word string) string {
	const most = 80
	if len(word) > most {
		return fmt.Sprintf("%q...", word[:most])
	}
	return fmt.Sprintf("%q", word)
}

// AppendName appends a name of a hosts file, which has no escapes, to buf in wire
// form and lower case. The first label may be *. If the name is invalid, wrong is the
// reason.
func AppendName(buf []byte, text string) (name []byte, wrong string) {
	name = buf
	label, rest, more := "", strings.TrimSuffix(text, "."), true
	for more {
		label, rest, more = strings.Cut(rest, ".")
		switch {
		case label == "":
			return nil, "is not a name: a label is empty"
		case len(label) > wire.MaxLabel:
			return nil, fmt.Sprintf("is not a name: a label has more than %d bytes", wire.MaxLabel)
		case len(name)+len(label)+2 > wire.MaxName: // with its length, and the root
			return nil, fmt.Sprintf("is not a name: more than %d bytes", wire.MaxName)
		case strings.IndexByte(label, '*') >= 0 && (len(name) > len(buf) || label != "*"):
			return nil, "is not a name: * can only be the whole first label"
		}

		name = append(name, byte(len(label)))
		for i := range len(label) {
			c := label[i]
			if c <= ' ' || c == '\\' || c == 0x7F {
				return nil, "is not a name: a byte is not allowed"
			}
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			name = append(name, c)
		}
	}
	return append(name, 0), ""
}

// simple reports whether a name in wire form has one label, which is not *.
func simple(name []byte) bool { return len(name) == int(name[0])+2 && !IsWildcard(name) }

// IsWildcard reports whether the first label of a name in wire form is *.
func IsWildcard(name []byte) bool { return bytes.HasPrefix(name, []byte("\x01*")) }
