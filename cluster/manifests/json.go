package manifests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// json decodes a stream of JSON values from the given line of the file on. The
// items of a list are decoded one by one, as they are read, so that the output of
// kubectl get -o json is never held in memory. It returns the number of values
// before the first syntax error, and that error as a fault.
func (d *decoder) json(ctx context.Context, from io.Reader, line int) (values int, bad fault, err error) {
	lines := &lineReader{from: from, line: line}
	s := stream{decoder: d, json: json.NewDecoder(lines), lines: lines}
	for ; ctx.Err() == nil; values++ {
		err := s.value()
		switch {
		case err == nil:
			continue
		case lines.err != nil: // reading failed, and not decoding
			return values, fault{}, lines.err
		case errors.Is(err, io.EOF):
			return values, fault{}, nil
		}
		offset := s.json.InputOffset()
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = syntax.Offset
		} else if errors.Is(err, io.ErrUnexpectedEOF) {
			offset = lines.offset
		}
		return values, fault{lines.lineAt(offset), err}, nil
	}
	return values, fault{}, ctx.Err()
}

// A stream decodes JSON values into the items of its decoder.
type stream struct {
	*decoder
	json  *json.Decoder
	lines *lineReader
}

// An untyped item of a list waits until the list has named its kind.
type untyped struct {
	raw json.RawMessage
	at  position
}

// value decodes one value. It returns io.EOF after the last one.
func (s *stream) value() error {
	token, err := s.json.Token()
	if err != nil || token == nil { // null
		return err
	}
	if token != json.Delim('{') {
		return fmt.Errorf("got %v, want a JSON object", token)
	}

	// The fields other than items, with as many newlines as in the file.
	text := []byte{'{'}
	at := position{line: s.lines.lineAt(s.json.InputOffset())}
	line := at.line
	var list head
	var waiting []untyped
	isList := false

	for s.json.More() {
		key, err := s.json.Token()
		if err != nil {
			return unexpectedEnd(err)
		}
		if key == "items" && (list.Kind == "" || strings.HasSuffix(list.Kind, "List")) {
			if waiting, err = s.items(&list); err != nil {
				return unexpectedEnd(err)
			}
			isList = true
			continue
		}

		var raw json.RawMessage
		begins, err := s.next(&raw)
		if err != nil {
			return unexpectedEnd(err)
		}
		switch key {
		case "kind":
			_ = json.Unmarshal(raw, &list.Kind) // another type is an error of the object
		case "apiVersion":
			_ = json.Unmarshal(raw, &list.APIVersion)
		}

		if len(text) > 1 {
			text = append(text, ',')
		}
		name, _ := json.Marshal(key)
		text = append(append(text, name...), ':')
		text = append(text, strings.Repeat("\n", max(0, begins-line))...)
		text = append(text, raw...)
		line = begins + bytes.Count(raw, []byte{'\n'})
	}

	if _, err := s.json.Token(); err != nil {
		return unexpectedEnd(err)
	}

	at.text = append(text, '}')
	switch {
	case !isList:
		s.object(at.text, nil, at)
	case !strings.HasSuffix(list.Kind, "List") || list.APIVersion == "":
		s.fail(at.line, errNoObject)
	}
	for _, item := range waiting {
		s.object(item.raw, &list, item.at)
	}
	return nil
}

// next decodes a value and returns the line in which it begins.
func (s *stream) next(raw *json.RawMessage) (line int, err error) {
	if err := s.json.Decode(raw); err != nil {
		return 0, err
	}
	return s.lines.lineAt(s.json.InputOffset() - int64(len(*raw))), nil
}

// items decodes the items of a list. It returns the items without a kind, if the
// list has not named its own yet.
func (s *stream) items(list *head) (waiting []untyped, err error) {
	token, err := s.json.Token()
	if err != nil || token == nil {
		return nil, err
	}
	if token != json.Delim('[') {
		return nil, fmt.Errorf("items: got %v, want an array", token)
	}

	for s.json.More() {
		var raw json.RawMessage
		line, err := s.next(&raw)
		if err != nil {
			return nil, err
		}
		at := position{text: raw, line: line}
		if list.Kind != "" {
			s.object(raw, list, at)
		} else if h, err := s.head(raw); err == nil && h.Kind == "" {
			waiting = append(waiting, untyped{raw, at})
		} else {
			s.typed(raw, h, err, nil, at)
		}
	}

	_, err = s.json.Token()
	return waiting, err
}

// unexpectedEnd returns err, or io.ErrUnexpectedEOF for the end of the file inside
// a value.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A lineReader counts the lines that are read.
type lineReader struct {
	from     io.Reader
	offset   int64
	newlines []int64 // offsets of those after the line below
	line     int
	err      error // other than io.EOF
}

func (r *lineReader) Read(buf []byte) (int, error) {
	n, err := r.from.Read(buf)
	for i, b := range buf[:n] {
		if b == '\n' {
			r.newlines = append(r.newlines, r.offset+int64(i))
		}
	}
	r.offset += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// lineAt returns the line of the byte at offset. Offsets must not decrease from
// one call to the next.
func (r *lineReader) lineAt(offset int64) int {
	n := 0
	for n < len(r.newlines) && r.newlines[n] < offset {
		n++
	}
	r.newlines = append(r.newlines[:0], r.newlines[n:]...)
	r.line += n
	return r.line
}
