package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// A decoder turns one file into items. Objects are slimmed as soon as they are
// decoded, so that a large folder is never held as typed objects.
type decoder struct {
	opts     Options
	scope    scope
	file     string // as it is named in messages
	items    []*item
	errors   []fault  // documents that do not parse
	warnings []string // of objects that do, with file and line
}

// A fault is an error with its line in the file.
type fault struct {
	line int
	err  error
}

// complaint is one line for all faults of the file.
func (d *decoder) complaint() string {
	text := fmt.Sprintf("%s:%d: %v", d.file, d.errors[0].line, d.errors[0].err)
	if more := len(d.errors) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more errors in this file)", more)
	}
	return text
}

func (d *decoder) fail(line int, err error) { d.errors = append(d.errors, fault{line, err}) }

func (d *decoder) warn(line int, format string, args ...any) {
	d.warnings = append(d.warnings, fmt.Sprintf("%s:%d: %s", d.file, line, fmt.Sprintf(format, args...)))
}

// decode reads the whole file. Chunks are decoded side by side, and what they
// gave is put together in their order.
func (d *decoder) decode(ctx context.Context, data []byte) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var chunks []chunk
	for _, doc := range split(data) {
		chunks = append(chunks, doc.parts()...)
	}
	parts := make([]decoder, len(chunks))
	inParallel(ctx, len(chunks), func(i int) {
		parts[i] = decoder{opts: d.opts, scope: d.scope, file: d.file}
		parts[i].chunk(chunks[i])
	})
	for _, p := range parts {
		d.items = append(d.items, p.items...)
		d.errors = append(d.errors, p.errors...)
		d.warnings = append(d.warnings, p.warnings...)
	}
}

// A chunk is a document, or some items of a list.
type chunk struct {
	text  []byte
	line  int   // of its first byte in the file
	list  *head // not nil: text is a sequence of items of this list
	lines []int // of these items
}

func (d *decoder) chunk(c chunk) {
	if c.list == nil && isJSON(c.text) {
		d.json(c)
		return
	}
	raw, known, err := yamlToJSON(c.text)
	if err != nil {
		d.fail(yamlFault(c, err))
		return
	}
	if c.list == nil {
		d.object(raw, known, nil, &place{line: c.line})
		return
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		d.fail(c.line, fmt.Errorf("items of %s: %w", c.list.Kind, err))
		return
	}
	for i, item := range items {
		d.object(item, nil, c.list, &place{line: c.lines[min(i, len(c.lines)-1)]})
	}
}

// split cuts a file at the lines that YAML reserves for it. A JSON file is one
// chunk, whatever number of values it has.
func split(data []byte) (docs []chunk) {
	from, fromLine := 0, 1
	add := func(to int) {
		if hasContent(data[from:to]) {
			docs = append(docs, chunk{text: data[from:to], line: fromLine})
		}
	}
	for at, line := 0, 1; at < len(data); line++ {
		end := lineEnd(data, at)
		begins := isMarker(data[at:end], "---")
		if begins || isMarker(data[at:end], "...") {
			add(at)
			from, fromLine = end, line+1
			if begins && len(bytes.TrimSpace(data[at:end])) > 3 { // content behind the marker
				from, fromLine = at, line
			}
		}
		at = end
	}
	add(len(data))
	return docs
}

// lineEnd is the start of the line behind the one at at.
func lineEnd(data []byte, at int) int {
	if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(data)
}

func isMarker(line []byte, marker string) bool {
	return bytes.HasPrefix(line, []byte(marker)) && (len(line) == 3 || strings.IndexByte(" \t\r\n", line[3]) >= 0)
}

func isJSON(data []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) }

// hasContent is false for text of comments, directives and empty lines alone.
func hasContent(text []byte) bool {
	for line := range bytes.Lines(text) {
		if isMarker(line, "---") {
			line = line[3:]
		}
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return true
		}
	}
	return false
}

// json decodes the JSON values of a chunk. One that turns out to be YAML's own
// way of writing { } is left to the YAML parser.
func (d *decoder) json(c chunk) {
	at := &place{text: c.text, line: c.line}
	dec := json.NewDecoder(bytes.NewReader(c.text))
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return
		}
		end := int(dec.InputOffset())
		if err == nil {
			at.move(end - len(raw))
			d.object(raw, nil, nil, at)
			continue
		}
		if end == 0 && filepath.Ext(d.file) != ".json" {
			if raw, known, err := yamlToJSON(c.text); err == nil {
				d.object(raw, known, nil, &place{line: c.line})
				return
			}
		}
		end = len(c.text)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			end = int(syntax.Offset)
		}
		d.fail(at.lineOf(end-at.offset), err)
		return
	}
}

// A place is where an object begins: an offset and its line. What was YAML has
// no text, and all of it is at its first line.
type place struct {
	text         []byte
	offset, line int
}

// move goes forward to an offset.
func (p *place) move(offset int) { *p = place{p.text, offset, p.lineOf(offset - p.offset)} }

// lineOf is the line n bytes further on.
func (p *place) lineOf(n int) int {
	rest := p.text[min(p.offset, len(p.text)):]
	return p.line + bytes.Count(rest[:min(max(n, 0), len(rest))], []byte("\n"))
}

// inParallel calls do for every number below n, on as many goroutines as pay
// off, and waits for them. It stops early when ctx is done.
func inParallel(ctx context.Context, n int, do func(int)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0), 4) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wait.Wait()
}
