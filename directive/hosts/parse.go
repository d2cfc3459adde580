package hosts

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/seamark/seamark/wire"
)

// maxLine is how long a line may be. A program writes such a line, and it is
// not one of hosts.
const maxLine = 1 << 20

// A complaint is what is wrong with a line.
type complaint struct {
	line int
	text string
}

// A fields reader goes through the lines of a text, and through the words of
// each, without copying them.
type fields struct {
	text string
	line int // that of the words
	rest string
}

// next goes to the next line that has words. It says how long the line is.
func (f *fields) next() (size int, ok bool) {
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

// blanks stand between words: of Windows' line ends one is left.
const blanks = " \t\r\v\f"

// word takes the next word of the line; "" if there is none.
func (f *fields) word() (word string) {
	word = f.rest
	if i := strings.IndexAny(word, blanks); i >= 0 {
		word, f.rest = word[:i], strings.TrimLeft(word[i:], blanks)
	} else {
		f.rest = ""
	}
	return word
}

const byteOrderMark = "\xef\xbb\xbf"

// parse reads text and gives take each address with one of its names, in wire
// form, lower case, which is valid until take returns. Names of one label it gives
// with domain behind them first, unless that is "" or they end with a dot. It tells
// complain what it leaves out: the rest of the text counts.
func parse(text string, domain wire.Name, take func(addr netip.Addr, name []byte), complain func(complaint)) {
	var room, longer [wire.MaxName]byte
	f := fields{text: strings.TrimPrefix(text, byteOrderMark)}
	for {
		size, ok := f.next()
		if !ok {
			return
		}
		if size > maxLine {
			complain(complaint{f.line, fmt.Sprintf("longer than %d bytes", maxLine)})
			continue
		}
		word := f.word()
		addr, err := netip.ParseAddr(word)
		switch {
		case err != nil:
			complain(complaint{f.line, fmt.Sprintf("%s is not an IP address", quote(word))})
			continue
		case f.rest == "":
			complain(complaint{f.line, "no name behind the address"})
			continue
		case addr.Zone() != "": // which means something on one machine alone
			continue
		}
		addr = addr.Unmap()
		for f.rest != "" {
			word := f.word()
			name, wrong := appendName(room[:0], word)
			if wrong != "" {
				complain(complaint{f.line, quote(word) + " " + wrong})
				continue
			}
			if domain != "" && simple(name) && !strings.HasSuffix(word, ".") {
				if long := append(append(longer[:0], name[:len(name)-1]...), domain...); len(long) <= wire.MaxName {
					take(addr, long)
				} else {
					complain(complaint{f.line, fmt.Sprintf("%s has no room for %v behind it", quote(word), domain)})
				}
			}
			take(addr, name)
		}
	}
}

// quote shortens a word that is going to be shown.
func quote(word string) string {
	const most = 80
	if len(word) > most {
		return fmt.Sprintf("%q…", word[:most])
	}
	return fmt.Sprintf("%q", word)
}

// appendName writes a name of a hosts file in wire form behind buf, lower case.
// There are no escapes in such files. A whole label * in front stands for any
// name below the rest.
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
				return nil, "is not a name: it has a byte that names have not"
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

// simple says whether a name in wire form has one label, which is not *.
func simple(name []byte) bool { return len(name) == int(name[0])+2 && !isWildcard(name) }

// isWildcard says whether a name in wire form begins with the label *.
func isWildcard(name []byte) bool { return bytes.HasPrefix(name, []byte("\x01*")) }
