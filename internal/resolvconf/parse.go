package resolvconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v2"
)

// parse gives the documents of a text that are not empty. A key that is there
// twice is an error, as it is for the API server.
func parse(file string, text []byte) ([]tree, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		docs, err := parseJSON(text)
		if err == nil {
			return docs, nil
		}
		if strings.HasSuffix(file, ".json") {
			return nil, fmt.Errorf("%s:%w", file, err)
		}
		// It may be YAML's own way of writing { }.
	}
	docs, err := parseYAML(text, true)
	if err != nil && bytes.Contains(text, []byte("<<")) {
		// For the parser a key is there twice, too, if the first comes from a
		// merge, where that is meant.
		docs, err = parseYAML(text, false)
	}
	lines := bytes.Count(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) + 1
	if all, ok := errors.AsType[*yaml.TypeError](err); ok {
		var errs []error
		for _, fault := range all.Errors {
			errs = append(errs, place(file, fault, lines))
		}
		return nil, errors.Join(errs...)
	}
	if err != nil {
		return nil, place(file, strings.TrimPrefix(err.Error(), "yaml: "), lines)
	}
	return docs, nil
}

func parseYAML(text []byte, strict bool) (docs []tree, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.SetStrict(strict)
	for {
		var t tree
		err := d.Decode(&t)
		switch {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			return nil, err
		case !t.isNull():
			docs = append(docs, t)
		}
	}
}

// place puts the file before the parser's "line 3: …". Of some mistakes it
// counts the lines from zero: those which it finds while it looks for the next
// part of the grammar, not while it cuts the text into words. At the end of the
// text, which has so many lines, it may be one too far.
func place(file, fault string, lines int) error {
	var line int
	if _, err := fmt.Sscanf(fault, "line %d:", &line); err != nil {
		return fmt.Errorf("%s: %s", file, fault)
	}
	_, fault, _ = strings.Cut(fault, ": ")
	if strings.HasPrefix(fault, "did not find expected") {
		line++
	}
	line = min(line, lines)
	if strings.HasSuffix(fault, "into string") { // what no key can be
		fault = "a mapping or a list stands in the place of a key; is it a template that must be filled in first?"
	}
	return fmt.Errorf("%s:%d: %s", file, line, fault)
}

// parseJSON is parse for JSON, which has escapes of its own. An error begins
// with its line.
func parseJSON(text []byte) (docs []tree, err error) {
	j := &jsonReader{text: text, line: 1, d: json.NewDecoder(bytes.NewReader(text))}
	j.d.UseNumber()
	for {
		t, err := j.next()
		switch {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				j.move(int(syntax.Offset))
			}
			return nil, fmt.Errorf("%d: %w", j.line, err)
		}
		docs = append(docs, t)
	}
}

type jsonReader struct {
	d        *json.Decoder
	text     []byte
	at, line int // how far lines are counted
}

// move counts the lines up to an offset.
func (j *jsonReader) move(to int) {
	if to = min(to, len(j.text)); to > j.at {
		j.line += bytes.Count(j.text[j.at:to], []byte("\n"))
		j.at = to
	}
}

// next reads a value. The end of the text is io.EOF only before its first token.
func (j *jsonReader) next() (t tree, err error) {
	token, err := j.d.Token()
	if err != nil {
		return tree{}, err
	}
	j.move(int(j.d.InputOffset()))
	t.line = j.line
	switch token {
	case nil:
		return tree{}, nil
	case json.Delim('{'):
		t.fields = map[string]tree{}
	case json.Delim('['):
	default:
		t.scalar = token
		return t, nil
	}
	for j.d.More() {
		var key string
		if t.fields != nil {
			token, err := j.d.Token()
			if err != nil {
				return tree{}, unexpected(err)
			}
			j.move(int(j.d.InputOffset()))
			key, _ = token.(string) // the decoder takes nothing else here
		}
		value, err := j.next()
		if err != nil {
			return tree{}, unexpected(err)
		}
		if t.fields == nil {
			t.items = append(t.items, value)
			continue
		}
		if _, twice := t.fields[key]; twice {
			return tree{}, fmt.Errorf("key %q already set in map", key)
		}
		t.fields[key] = value
	}
	_, err = j.d.Token() // the end of it
	return t, unexpected(err)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
