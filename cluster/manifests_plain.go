package cluster

import (
	"bytes"
	"strings"
)

// Nearly all manifests are written in a small part of YAML: block mappings and
// sequences, short flow ones, and scalars of one line. The YAML parser builds a
// tree of everything that it reads, which costs forty times the memory of the
// text, so that part is converted here, line by line.

// plainDepth is how deep values may nest.
const plainDepth = 64

// plainKey is how long keys may be; YAML's own limit is twice that.
const plainKey = 512

// plainToJSON converts a document that is written in that part. It is false for
// any other and for whatever is doubtful, wrong documents among it: these are
// the parser's. Of endpoints it leaves out what nobody reads. h is what the
// object is, if that has been met on the way, else nil.
func plainToJSON(text []byte) (raw []byte, h *head, ok bool) {
	for _, b := range text {
		if (b < ' ' || b > '~') && b != '\n' {
			return nil, nil, false // tabs, carriage returns, and what is not ASCII
		}
	}
	p := plain{text: text, out: make([]byte, 0, len(text))}
	p.line(0)
	p.block(0, -1)
	if p.bad || p.at < len(text) {
		return nil, nil, false
	}
	if !p.headless && p.head.Kind != "" {
		h = &p.head
	}
	return p.out, h, true
}

// A plain converter stands at the first character of a value, of a key or of a
// sequence's entry, or at the end of the text.
type plain struct {
	text     []byte
	at       int
	column   int // of what it stands at; -1 at the end
	out      []byte
	keys     [][]byte // of the mappings that are open
	top      string   // the key of the document where it stands
	head     head
	metadata bool // head has those of a block mapping
	headless bool // head may lack something
	bad      bool // it is not that part of YAML
}

func (p *plain) fail() {
	p.bad, p.at, p.column = true, len(p.text), -1
}

// line goes to the next content from the beginning of a line on.
func (p *plain) line(from int) {
	for from < len(p.text) {
		at := from
		for at < len(p.text) && p.text[at] == ' ' {
			at++
		}
		if at < len(p.text) && p.text[at] != '\n' && p.text[at] != '#' {
			p.at, p.column = at, at-from
			return
		}
		from = lineEnd(p.text, at)
	}
	p.at, p.column = len(p.text), -1
}

// rest goes past spaces and a comment to the content of the next line. Anything
// else on this one is not understood.
func (p *plain) rest(at int) {
	if p.bad {
		return
	}
	from := at
	for p.byteAt(at) == ' ' {
		at++
	}
	switch {
	case p.byteAt(at) == '\n':
		p.line(at + 1)
	case p.byteAt(at) == '#' && at > from:
		p.line(lineEnd(p.text, at))
	default:
		p.fail()
	}
}

// byteAt is a line feed behind the end of the text.
func (p *plain) byteAt(at int) byte {
	if at < len(p.text) {
		return p.text[at]
	}
	return '\n'
}

// ends says whether a space or the end of the line is at that place.
func (p *plain) ends(at int) bool { return p.byteAt(at) == ' ' || p.byteAt(at) == '\n' }

// entry says whether this is an entry of a sequence.
func (p *plain) entry() bool { return p.byteAt(p.at) == '-' && p.ends(p.at+1) }

// block converts the value here, which is part of one at column outer.
func (p *plain) block(depth, outer int) {
	switch {
	case p.bad:
	case depth > plainDepth || p.column < 0:
		p.fail()
	case p.entry():
		p.sequence(depth, p.column)
	case p.key() > 0:
		if depth == 1 && p.top == "metadata" {
			p.metadata = true
		}
		p.mapping(depth, p.column)
	case depth == 0:
		p.fail() // a document of a scalar is no object
	default:
		p.value(depth, outer)
	}
}

func (p *plain) sequence(depth, column int) {
	p.out = append(p.out, '[')
	for first := true; p.column == column && p.entry(); first = false {
		if !first {
			p.out = append(p.out, ',')
		}
		at := p.at + 1
		for p.byteAt(at) == ' ' {
			at++
		}
		switch b := p.byteAt(at); {
		case b == '\n' || b == '#':
			if p.rest(p.at + 1); p.column > column {
				p.block(depth+1, column)
			} else {
				p.out = append(p.out, "null"...)
			}
		default:
			p.column += at - p.at
			p.at = at
			p.block(depth+1, column)
		}
	}
	if p.column > column {
		p.fail()
	}
	p.out = append(p.out, ']')
}

// key is the length of the key that is here, 0 if there is none that is a
// string for sure.
func (p *plain) key() int {
	at := p.at
	if b := p.byteAt(at); b|0x20 < 'a' || b|0x20 > 'z' {
		return 0
	}
	for at < p.at+plainKey {
		switch b := p.byteAt(at); {
		case b|0x20 >= 'a' && b|0x20 <= 'z', b >= '0' && b <= '9', b == '.', b == '/', b == '-', b == '_', b == '~':
		case b == ':' && p.ends(at+1):
			if isWord(p.text[p.at:at]) {
				return 0
			}
			return at - p.at
		default:
			return 0
		}
		at++
	}
	return 0
}

// member writes the key here, and is false if the mapping that has keys from
// that number on has it already, which the parser and JSON take differently.
func (p *plain) member(length, keys int) bool {
	key := p.text[p.at : p.at+length]
	for _, other := range p.keys[keys:] {
		if bytes.Equal(other, key) {
			return false
		}
	}
	if p.out[len(p.out)-1] != '{' {
		p.out = append(p.out, ',')
	}
	p.keys = append(p.keys, key)
	p.out = append(append(append(p.out, '"'), key...), '"', ':')
	return len(p.keys) <= keys+plainDepth
}

func (p *plain) mapping(depth, column int) {
	keys := len(p.keys)
	p.out = append(p.out, '{')
	for p.column == column && !p.entry() {
		length, before := p.key(), len(p.out)
		if length == 0 || !p.member(length, keys) {
			p.fail()
			return
		}
		key := p.text[p.at : p.at+length]
		if depth == 0 {
			p.top = string(key)
		}
		at, from := p.at+length+1, len(p.out)
		for p.byteAt(at) == ' ' {
			at++
		}
		if b := p.byteAt(at); b != '\n' && b != '#' {
			p.at = at
			p.value(depth+1, column)
		} else if p.rest(p.at + length + 1); p.column > column || p.column == column && p.entry() { // a sequence may stand under its key
			p.block(depth+1, column)
		} else {
			p.out = append(p.out, "null"...)
		}
		if p.bad {
			return
		}
		if depth < 2 {
			p.note(depth, string(key), p.out[from:])
		}
		p.leave(key, before)
	}
	if p.column > column {
		p.fail()
	}
	p.keys = p.keys[:keys]
	p.out = append(p.out, '}')
}

// note keeps of a member what says what the object is.
func (p *plain) note(depth int, key string, value []byte) {
	var to *string
	switch {
	case depth == 0 && key == "kind":
		to = &p.head.Kind
	case depth == 0 && key == "apiVersion":
		to = &p.head.APIVersion
	case depth == 0 && key == "metadata" && p.metadata: // noted already
		return
	case depth == 1 && p.top == "metadata" && key == "name":
		to = &p.head.Metadata.Name
	case depth == 1 && p.top == "metadata" && key == "namespace":
		to = &p.head.Metadata.Namespace
	case depth == 1 && p.top == "metadata":
		p.headless = p.headless || strings.EqualFold(key, "name") || strings.EqualFold(key, "namespace") // which JSON takes for these
	case depth == 0:
		for _, read := range [...]string{"kind", "apiVersion", "metadata", "items"} {
			p.headless = p.headless || strings.EqualFold(key, read)
		}
	}
	if to == nil {
		return
	}
	if text := value[1 : len(value)-min(len(value)-1, 1)]; value[0] == '"' && bytes.IndexByte(text, '\\') < 0 {
		*to = string(text)
	} else {
		p.headless = true
	}
}

// leave drops a member of an endpoint again that nobody reads: its place in the
// text is most of a large folder.
func (p *plain) leave(key []byte, before int) {
	if p.top != "endpoints" {
		return
	}
	switch string(key) {
	case "nodeName", "serving", "terminating", "namespace", "uid":
		p.out = p.out[:before]
	}
}

// value converts the scalar or flow value here, which ends with its line. What
// follows must not be further right than column, or it would be part of it.
func (p *plain) value(depth, column int) {
	switch p.byteAt(p.at) {
	case '[', '{':
		p.rest(p.flow(depth, p.at))
	case '"', '\'':
		p.rest(p.quoted(p.at))
	case '|':
		p.literal(column)
	default:
		end := p.at
		for b := p.byteAt(end); b != '\n'; b = p.byteAt(end) {
			if b == ':' && p.ends(end+1) {
				p.fail()
				return
			}
			if b == '#' && p.text[end-1] == ' ' {
				break
			}
			end++
		}
		text := bytes.TrimRight(p.text[p.at:end], " ")
		p.scalar(text)
		p.rest(p.at + len(text))
	}
	if p.column > column {
		p.fail()
	}
}

// flow converts a flow mapping or sequence that ends on its line, and returns
// where it ends.
func (p *plain) flow(depth, at int) int {
	open := p.text[at]
	last := open + 2 // [ ] and { } are two apart
	keys := len(p.keys)
	p.out = append(p.out, open)
	if depth > plainDepth {
		p.fail()
	}
	for first := true; !p.bad; first = false {
		for at++; p.byteAt(at) == ' '; at++ {
		}
		if first && p.byteAt(at) == last {
			break
		}
		before := len(p.out)
		var key []byte
		if open == '{' {
			p.at = at
			length := p.key()
			if length == 0 || p.byteAt(at+length+1) != ' ' || !p.member(length, keys) {
				p.fail()
				return at
			}
			key = p.text[at : at+length]
			for at += length + 1; p.byteAt(at) == ' '; at++ {
			}
		} else if !first {
			p.out = append(p.out, ',')
		}
		switch p.byteAt(at) {
		case '[', '{':
			at = p.flow(depth+1, at)
		case '"', '\'':
			at = p.quoted(at)
		default:
			from := at
			for bytes.IndexByte([]byte(",[]{}:?#\n"), p.byteAt(at)) < 0 { // the parser ends a text at a question mark too
				at++
			}
			text := bytes.TrimRight(p.text[from:at], " ")
			p.scalar(text)
		}
		if p.bad {
			return at
		}
		p.leave(key, before)
		for p.byteAt(at) == ' ' {
			at++
		}
		if p.byteAt(at) == last {
			break
		}
		if p.byteAt(at) != ',' {
			p.fail()
		}
	}
	p.keys = p.keys[:keys]
	p.out = append(p.out, last)
	return at + 1
}
