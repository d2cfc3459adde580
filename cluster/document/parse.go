// Package document parses YAML and JSON into values with their lines, for commands
// that read the manifests of a user and report mistakes in them.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v2"
)

// mergeKey matches a key of YAML's merges, and what looks like one in a text.
var mergeKey = regexp.MustCompile(`(?m)(^|[{,\s])["']?<<["']?[ \t]*:`)

// Parse returns the non-empty documents of a text. A duplicate key is an error,
// as for the API server.
func Parse(file string, text []byte) ([]Value, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		docs, err := parseJSON(text)
		if err == nil {
			return docs, nil
		}
		if strings.HasSuffix(file, ".json") {
			return nil, fmt.Errorf("%s:%w", file, err)
		}
		// It may be in YAML's flow style.
	}

	docs, err := parseYAML(text, true)
	if err != nil && mergeKey.Match(text) {
		// The strict parser also rejects a key that overrides one from a merge,
		// which is valid.
		docs, err = parseYAML(text, false)
	}

	lines := bytes.Count(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) + 1
	if all, ok := errors.AsType[*yaml.TypeError](err); ok {
		var errs []error
		for _, fault := range all.Errors {
			errs = append(errs, position(file, fault, lines))
		}
		return nil, errors.Join(errs...)
	}
	if err != nil {
		return nil, position(file, err.Error(), lines)
	}
	return docs, nil
}

func parseYAML(text []byte, strict bool) (docs []Value, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.SetStrict(strict)
	for {
		var v Value
		err := d.Decode(&v)
		switch {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			return nil, err
		case !v.IsNull():
			docs = append(docs, v)
		}
	}
}

// position returns an error with the file and line of the YAML parser's message. An error
// at the end of the text may be one line too far, so the line is limited to the number of
// lines.
func position(file, message string, lines int) error {
	line, fault := Fault(message)
	if line == 0 {
		return fmt.Errorf("%s: %s", file, fault)
	}
	if strings.HasSuffix(fault, "into string") { // a key that is a mapping or list
		fault = "a mapping or list as a key: if this is a template, render it first"
	}
	return fmt.Errorf("%s:%d: %s", file, min(line, lines), fault)
}

// Fault splits the YAML parser's message "yaml: line 3: ..." into the line, from 1 on, and
// the text. The line is 0 if the message has none, as for an error in the first line. The
// parser counts lines from zero in its grammar errors and from one in other messages.
func Fault(message string) (line int, text string) {
	text = strings.TrimPrefix(message, "yaml: ")
	if _, err := fmt.Sscanf(text, "line %d:", &line); err != nil {
		return 0, text
	}
	_, text, _ = strings.Cut(text, ": ")
	if strings.HasPrefix(text, "did not find expected") {
		line++
	}
	return line, text
}

// parseJSON is Parse for JSON, whose escapes differ from YAML's. An error starts
// with its line.
func parseJSON(text []byte) (docs []Value, err error) {
	j := &jsonReader{text: text, line: 1, d: json.NewDecoder(bytes.NewReader(text))}
	j.d.UseNumber()
	for {
		v, err := j.next()
		switch {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				j.move(int(syntax.Offset))
			}
			return nil, fmt.Errorf("%d: %w", j.line, err)
		}
		docs = append(docs, v)
	}
}

type jsonReader struct {
	d        *json.Decoder
	text     []byte
	at, line int // offset up to which lines are counted, and the line there
}

// move counts the lines up to an offset.
func (j *jsonReader) move(to int) {
	if to = min(to, len(j.text)); to > j.at {
		j.line += bytes.Count(j.text[j.at:to], []byte("\n"))
		j.at = to
	}
}

// next reads a value. It returns io.EOF only at the end of the text before a
// value.
func (j *jsonReader) next() (v Value, err error) {
	token, err := j.d.Token()
	if err != nil {
		return Value{}, err
	}
	j.move(int(j.d.InputOffset()))
	v.Line = j.line
	switch token {
	case nil:
		return Value{}, nil
	case json.Delim('{'):
		v.Fields = map[string]Value{}
	case json.Delim('['):
	default:
		v.Scalar = token
		return v, nil
	}

	for j.d.More() {
		var key string
		if v.Fields != nil {
			token, err := j.d.Token()
			if err != nil {
				return Value{}, unexpected(err)
			}
			j.move(int(j.d.InputOffset()))
			key, _ = token.(string) // the decoder accepts only strings here
		}

		value, err := j.next()
		if err != nil {
			return Value{}, unexpected(err)
		}
		if v.Fields == nil {
			v.Items = append(v.Items, value)
			continue
		}
		if _, twice := v.Fields[key]; twice {
			return Value{}, fmt.Errorf("key %q already set in map", key)
		}
		v.Fields[key] = value
	}
	_, err = j.d.Token() // the closing delimiter
	return v, unexpected(err)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
