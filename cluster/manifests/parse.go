package manifests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seamark/seamark/cluster"
)

// A decoder decodes one file into items. It slims each object at once, so that a
// large folder is never held as full-size objects.
type decoder struct {
	opts     cluster.Options
	scope    scope
	file     string // name for messages
	items    []*item
	errors   []fault   // documents that do not parse
	warnings []warning // of objects that do
	shapes   *shapes   // of the folder's documents

	// decoded is called with each object and its item, from several goroutines; it may be nil.
	decoded func(raw json.RawMessage, it *item)
}

// A fault is an error with its line in the file.
type fault struct {
	line int
	err  error
}

// invalid returns one warning about all errors of the file.
func (d *decoder) invalid(msg string) warning {
	first := d.errors[0]
	return warning{msg, []any{"file", d.file, "line", first.line, "error", first.err, "count", len(d.errors)}}
}

func (d *decoder) fail(line int, err error) { d.errors = append(d.errors, fault{line, err}) }

func (d *decoder) warn(line int, msg string, attrs ...any) {
	d.warnings = append(d.warnings, warning{msg, append([]any{"file", d.file, "line", line}, attrs...)})
}

// decode reads the file. JSON is decoded as it is read, one object at a time;
// YAML is read whole and its chunks are decoded in parallel, in their order.
func (d *decoder) decode(ctx context.Context, file io.Reader) error {
	head := bufio.NewReaderSize(file, 64<<10)
	if bom, _ := head.Peek(3); string(bom) == "\xef\xbb\xbf" {
		_, _ = head.Discard(3)
	}

	if isJSONFile(d.file) {
		_, bad, err := d.json(ctx, head, 1)
		if bad.err != nil {
			d.fail(bad.line, bad.err)
		}
		return err
	}

	data, err := io.ReadAll(head)
	if err != nil {
		return err
	}

	var chunks []chunk
	for _, doc := range split(data) {
		chunks = append(chunks, doc.parts()...)
	}
	parts := make([]decoder, len(chunks))
	inParallel(ctx, len(chunks), func(i int) {
		parts[i] = decoder{opts: d.opts, scope: d.scope, file: d.file, shapes: d.shapes, decoded: d.decoded}
		parts[i].chunk(ctx, chunks[i])
	})

	for _, p := range parts {
		d.items = append(d.items, p.items...)
		d.errors = append(d.errors, p.errors...)
		d.warnings = append(d.warnings, p.warnings...)
	}
	return nil
}

// A chunk is a YAML document, or some items of a YAML list.
type chunk struct {
	text  []byte
	line  int   // of its first byte in the file
	list  *head // not nil: text is a sequence of items of this list
	lines []int // of these items
}

func (d *decoder) chunk(ctx context.Context, c chunk) {
	if c.list == nil && isJSON(c.text) {
		values, bad, _ := d.json(ctx, bytes.NewReader(c.text), c.line)
		if bad.err == nil {
			return
		}
		if raw, err := yamlToJSON(c.text); values == 0 && err == nil { // YAML's flow style
			d.object(raw, nil, position{line: c.line})
		} else {
			d.fail(bad.line, bad.err)
		}
		return
	}

	raw, h, err := d.shapes.toJSON(c.text)
	if err != nil {
		d.fail(yamlFault(c, err))
		return
	}
	switch {
	case c.list == nil && h != nil:
		d.typed(raw, *h, nil, nil, position{line: c.line})
		return
	case c.list == nil:
		d.object(raw, nil, position{line: c.line})
		return
	}

	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		d.fail(c.line, fmt.Errorf("items of %s: %w", c.list.Kind, err))
		return
	}
	for i, item := range items {
		d.object(item, c.list, position{line: c.lines[min(i, len(c.lines)-1)]})
	}
}

// split splits a file at YAML's document markers.
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
			if begins && len(bytes.TrimSpace(data[at:end])) > 3 { // content after the marker
				from, fromLine = at, line
			}
		}
		at = end
	}
	add(len(data))
	return docs
}

// lineEnd returns the offset of the line after the line that begins at offset at.
func lineEnd(data []byte, at int) int {
	if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(data)
}

func isMarker(line []byte, marker string) bool {
	return bytes.HasPrefix(line, []byte(marker)) && (len(line) == 3 || strings.IndexByte(" \t\r\n", line[3]) >= 0)
}

func isJSONFile(name string) bool { return filepath.Ext(name) == ".json" }

func isJSON(data []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) }

// hasContent reports whether text has more than comments, directives and empty lines.
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

// A position is where an object begins in the file. Text is the object's own if
// it was JSON; an object from YAML counts as being in its first line.
type position struct {
	text []byte
	line int
}

// lineOf returns the line of the byte at an offset of the text.
func (p position) lineOf(offset int) int {
	return p.line + bytes.Count(p.text[:min(max(offset, 0), len(p.text))], []byte("\n"))
}

// inParallel calls do for every number below n, on up to four goroutines, and
// waits for them. It stops early when ctx is done.
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
