package hosts

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/seamark/seamark/wire"
)

// maxLine is the size of the longest line. A longer one is not a line of a hosts
// file.
const maxLine = 1 << 20

// A lineError describes an invalid line.
type lineError struct {
	line int
	text string
}

// A scanner splits a text into lines and words without copying it.
type scanner struct {
	text string // after the line
	line int    // number
	rest string // of the line
}

// next advances to the next line that has words, and returns its size.
func (f *scanner) next() (size int, ok bool) {
	for f.text != "" {
		line := f.text
		if i := strings.IndexByte(line, '\n'); i >= 0 {
			line, f.text = line[:i], f.text[i+1:]
		} else {
			f.text = ""
		}
		f.line++
		if i := strings.IndexByte(line, '#'); i >= 0 {
			line = line[:i]
		}
		if f.rest = strings.TrimLeft(line, blanks); f.rest != "" {
			return len(line), true
		}
	}
	return 0, false
}

// blanks separate words. Lines of Windows end in "\r\n".
const blanks = " \t\r\v\f"

// word returns the next word of the line, or "".
func (f *scanner) word() (word string) {
	word = f.rest
	if i := strings.IndexAny(word, blanks); i >= 0 {
		word, f.rest = word[:i], strings.TrimLeft(word[i:], blanks)
	} else {
		f.rest = ""
	}
	return word
}

const byteOrderMark = "\xef\xbb\xbf"

// parse calls add for each address and each of its names in text. The name is in
// wire form and lower case, and is valid until add returns. Before a name of one
// label that does not end with a dot, parse adds the name with domain appended,
// unless domain is "". It calls ignore for invalid lines and names, and continues.
func parse(text string, domain wire.Name, add func(addr netip.Addr, name []byte), ignore func(lineError)) {
	var room, longer [wire.MaxName]byte
	f := scanner{text: strings.TrimPrefix(text, byteOrderMark)}
	for {
		size, ok := f.next()
		if !ok {
			return
		}
		if size > maxLine {
			ignore(lineError{f.line, fmt.Sprintf("longer than %d bytes", maxLine)})
			continue
		}
		word := f.word()
		addr, err := netip.ParseAddr(word)
		switch {
		case err != nil:
			ignore(lineError{f.line, fmt.Sprintf("%s is not an IP address", quote(word))})
			continue
		case f.rest == "":
			ignore(lineError{f.line, "no name after the address"})
			continue
		case addr.Zone() != "": // has a meaning only on one machine
			continue
		}
		addr = addr.Unmap()
		for f.rest != "" {
			word := f.word()
			name, wrong := appendName(room[:0], word)
			if wrong != "" {
				ignore(lineError{f.line, quote(word) + " " + wrong})
				continue
			}
			if domain != "" && simple(name) && !strings.HasSuffix(word, ".") {
				if long := append(append(longer[:0], name[:len(name)-1]...), domain...); len(long) <= wire.MaxName {
					add(addr, long)
				} else {
					ignore(lineError{f.line, fmt.Sprintf("%s is too long with %v appended", quote(word), domain)})
				}
			}
			add(addr, name)
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

// appendName appends a name of a hosts file, which has no escapes, to buf in wire
// form and lower case. The first label may be *. If the name is invalid, wrong is the
// reason.
func appendName(buf []byte, text string) (name []byte, wrong string) {
	text = strings.TrimSuffix(text, ".")
	for at := 0; ; {
		end := strings.IndexByte(text[at:], '.')
		last := end < 0
		if last {
			end = len(text) - at
		}
		label := text[at : at+end]
		switch {
		case label == "":
			return nil, "is not a name: a label is empty"
		case len(label) > wire.MaxLabel:
			return nil, fmt.Sprintf("is not a name: a label has more than %d bytes", wire.MaxLabel)
		case len(buf)+len(label)+2 > wire.MaxName: // with its length, and the root
			return nil, fmt.Sprintf("is not a name: more than %d bytes", wire.MaxName)
		case strings.IndexByte(label, '*') >= 0 && (at > 0 || label != "*"):
			return nil, "is not a name: * can only be the whole first label"
		}
		buf = append(buf, byte(len(label)))
		for i := range len(label) {
			c := label[i]
			if c <= ' ' || c == '\\' || c == 0x7F {
				return nil, "is not a name: a byte is not allowed"
			}
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			buf = append(buf, c)
		}
		if last {
			return append(buf, 0), ""
		}
		at += end + 1
	}
}

// simple reports whether a name in wire form has one label, which is not *.
func simple(name []byte) bool { return len(name) == int(name[0])+2 && !isWildcard(name) }

// isWildcard reports whether the first label of a name in wire form is *.
func isWildcard(name []byte) bool { return bytes.HasPrefix(name, []byte("\x01*")) }
