package manifests

import (
	"bytes"
	"encoding/json"
	"strings"
)

// partSize is about how many bytes of a list are decoded at a time: the YAML
// parser needs forty times the memory of its text.
const partSize = 128 << 10

// parts splits a YAML list, in the form that kubectl get -o yaml writes, into
// chunks of some items. Any other document is one chunk, and so is one that may
// have anchors, which its items may share.
func (c chunk) parts() []chunk {
	if !bytes.Contains(c.text, []byte("items:")) {
		return []chunk{c}
	}
	from, to, firstLine := c.itemLines()
	if from == to || bytes.Contains(c.text, []byte(" &")) {
		return []chunk{c}
	}

	rest := append(append([]byte{}, c.text[:from]...), c.text[to:]...)
	raw, err := yamlToJSON(rest)
	list := new(head)
	if err != nil || json.Unmarshal(raw, list) != nil || !strings.HasSuffix(list.Kind, "List") {
		return []chunk{c}
	}

	var parts []chunk
	indent := indentOf(c.text[from:])
	for at, line := from, firstLine; at < to; line++ {
		end := lineEnd(c.text, at)
		if indentOf(c.text[at:end]) == indent && c.text[at+indent] == '-' {
			if n := len(parts); n == 0 || len(parts[n-1].text) > partSize {
				parts = append(parts, chunk{text: c.text[at:at], line: line, list: list})
			}
			p := &parts[len(parts)-1]
			p.lines = append(p.lines, line)
		}

		if len(parts) > 0 { // else the line is a comment before the first item
			p := &parts[len(parts)-1]
			p.text = p.text[:len(p.text)+end-at]
		}
		at = end
	}
	return parts
}

// itemLines returns the offsets and the first line of the block sequence under the
// key items.
func (c chunk) itemLines() (from, to, line int) {
	inItems, indent := false, -1
	for at, n := 0, c.line; at < len(c.text); n++ {
		end := lineEnd(c.text, at)
		text := c.text[at:end]
		trimmed := bytes.TrimSpace(text)
		switch {
		case !inItems:
			inItems = string(bytes.TrimRight(text, " \r\n")) == "items:"
		case len(trimmed) == 0 || trimmed[0] == '#': // belongs to the lines around it
		case indent < 0 && trimmed[0] == '-':
			indent, from, to, line = indentOf(text), at, end, n
		case indent >= 0 && (indentOf(text) > indent || indentOf(text) == indent && trimmed[0] == '-'):
			to = end
		default:
			return from, to, line
		}
		at = end
	}
	return from, to, line
}

func indentOf(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " ")) }
