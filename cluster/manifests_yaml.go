package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"
)

// yamlToJSON converts one document as Kubernetes does: YAML 1.1, keys that are
// not strings become strings. The parser bounds how many nodes aliases may
// make of a few, but a node may be a long string; so what the document grows
// to is bounded here.
//
// h is what the object is, if that is known already, else nil.
func yamlToJSON(text []byte) (raw []byte, h *head, err error) {
	if raw, h, ok := plainToJSON(text); ok {
		return raw, h, nil
	}
	raw, err = parsedToJSON(text)
	return raw, nil, err
}

// parsedToJSON is the same by the YAML parser.
func parsedToJSON(text []byte) ([]byte, error) {
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	j := jsonWriter{limit: 8*len(text) + 1<<20}
	err := j.value(value)
	return j.buf, err
}

type jsonWriter struct {
	buf   []byte
	limit int
}

func (j *jsonWriter) value(v any) error {
	if len(j.buf) > j.limit {
		return errors.New("document contains excessive aliasing")
	}
	switch v := v.(type) {
	case map[any]any:
		return j.object(v)
	case []any:
		j.buf = append(j.buf, '[')
		for i, item := range v {
			if i > 0 {
				j.buf = append(j.buf, ',')
			}
			if err := j.value(item); err != nil {
				return err
			}
		}
		j.buf = append(j.buf, ']')
	case string:
		j.text(v)
	default: // numbers, booleans, null; infinity is an error
		raw, err := json.Marshal(v)
		j.buf = append(j.buf, raw...)
		return err
	}
	return nil
}

func (j *jsonWriter) object(m map[any]any) error {
	j.buf = append(j.buf, '{')
	first := true
	for k, v := range m {
		if !first {
			j.buf = append(j.buf, ',')
		}
		first = false
		switch k := k.(type) {
		case string:
			j.text(k)
		case int, int64, uint64, float64, bool:
			j.text(fmt.Sprint(k))
		default:
			return fmt.Errorf("invalid map key: %v", k)
		}
		j.buf = append(j.buf, ':')
		if err := j.value(v); err != nil {
			return err
		}
	}
	j.buf = append(j.buf, '}')
	return nil
}

// text appends a string; nearly all need no escapes.
func (j *jsonWriter) text(s string) {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			raw, _ := json.Marshal(s) // a string has no errors
			j.buf = append(j.buf, raw...)
			return
		}
	}
	j.buf = strconv.AppendQuote(j.buf, s)
}

// yamlFault finds the line of an error in c. The parser counts from the first
// line of its text; from zero, where the grammar is at fault and not the
// spelling; says nothing when it is the first line; and at the end may be one
// too far.
func yamlFault(c chunk, err error) (int, error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if _, err := fmt.Sscanf(text, "line %d:", &line); err == nil {
		_, text, _ = strings.Cut(text, ": ")
		if !strings.HasPrefix(text, "did not find expected") {
			line--
		}
	}
	return c.line + min(line, bytes.Count(c.text, []byte("\n"))), errors.New(text)
}
