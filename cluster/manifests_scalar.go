package cluster

import (
	"bytes"
	"strconv"

	"go.yaml.in/yaml/v2"
)

// The scalars of a plain document: in quotes, in lines of their own, or neither.

// quoted converts a quoted text without escapes, and returns where it ends.
func (p *plain) quoted(at int) int {
	quote := p.text[at]
	end := at + 1
	for b := p.byteAt(end); b != quote; b = p.byteAt(end) {
		if b == '\n' || b == '\\' && quote == '"' {
			p.fail()
			return at
		}
		end++
	}
	if p.byteAt(end+1) == quote { // two of them are one
		p.fail()
		return at
	}
	p.string(p.text[at+1 : end])
	return end + 1
}

// literal converts a block of lines that are text as they are.
func (p *plain) literal(column int) {
	at, strip := p.at+1, false
	if p.byteAt(at) == '-' {
		at, strip = at+1, true
	}
	if p.byteAt(at) != '\n' || p.text[len(p.text)-1] != '\n' { // a text without a last line feed has none in its value
		p.fail()
		return
	}
	from := at + 1
	indent := indentOf(p.text[from:lineEnd(p.text, from)])
	var text []byte
	blank := 0 // lines at the end
	for from < len(p.text) {
		end := lineEnd(p.text, from)
		line := bytes.TrimSuffix(p.text[from:end], []byte("\n"))
		in := indentOf(line)
		switch {
		case in == len(line) && (in > indent || text == nil): // spaces alone, or no first line
			p.fail()
			return
		case in == len(line):
			blank++
		case in < indent || indent <= column:
			if in > column || text == nil {
				p.fail()
				return
			}
			goto done
		default:
			for ; blank > 0; blank-- {
				text = append(text, '\n')
			}
			text = append(append(text, line[indent:]...), '\n')
		}
		from = end
	}
done:
	if strip {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	if text == nil {
		p.fail()
		return
	}
	p.string(text)
	p.line(from)
}

// scalar converts a text without quotes.
func (p *plain) scalar(text []byte) {
	if len(text) == 0 {
		p.fail()
		return
	}
	digits, dots := 0, 0
	for _, b := range text {
		switch {
		case b >= '0' && b <= '9':
			digits++
		case b == '.':
			dots++
		}
	}
	first := text[0]
	switch {
	case (first|0x20 >= 'a' && first|0x20 <= 'z' || first == '/') && !isWord(text):
		p.string(text)
	case string(text) == "true" || string(text) == "false":
		p.out = append(p.out, text...)
	case digits == len(text) && (first != '0' || digits == 1) && digits < 18:
		p.out = append(p.out, text...)
	case digits > 0 && digits+dots == len(text) && dots == 3 && first != '.': // an address
		p.string(text)
	case first >= '0' && first <= '9' || isWord(text): // the parser knows what that is
		var value any
		j := jsonWriter{limit: 1 << 10}
		if yaml.Unmarshal(text, &value) != nil || j.value(value) != nil {
			p.fail()
			return
		}
		p.out = append(p.out, j.buf...)
	default:
		p.fail()
	}
}

// isWord says whether YAML may take the text for a truth value or for nothing.
func isWord(text []byte) bool {
	if len(text) > len("false") {
		return false
	}
	switch string(bytes.ToLower(text)) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return true
	}
	return false
}

func (p *plain) string(text []byte) {
	if bytes.IndexByte(text, '"') < 0 && bytes.IndexByte(text, '\\') < 0 && bytes.IndexByte(text, '\n') < 0 {
		p.out = append(append(append(p.out, '"'), text...), '"')
		return
	}
	p.out = strconv.AppendQuote(p.out, string(text)) // of ASCII: what it escapes, JSON escapes alike
}
