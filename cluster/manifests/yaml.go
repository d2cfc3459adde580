package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v2"

	"github.com/seamark/seamark/cluster/document"
)

// yamlToJSON converts one document as Kubernetes does: YAML 1.1, with keys that
// are not strings converted to strings. The parser limits how many nodes aliases
// may expand to, but a node may be a long string, so the size of the result is
// limited here.
func yamlToJSON(text []byte) ([]byte, error) {
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

// text appends a string. Nearly all need no escapes.
func (j *jsonWriter) text(s string) {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			raw, _ := json.Marshal(s) // never fails for a string
			j.buf = append(j.buf, raw...)
			return
		}
	}
	j.buf = strconv.AppendQuote(j.buf, s)
}

// yamlFault returns the line in the file, and the text, of an error in c. An error at the
// end may be one line too far.
func yamlFault(c chunk, err error) (int, error) {
	line, text := document.Fault(err.Error())
	return c.line + min(max(line-1, 0), bytes.Count(c.text, []byte("\n"))), errors.New(text)
}
