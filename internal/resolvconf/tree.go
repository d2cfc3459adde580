package resolvconf

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v2"
)

// A tree is a value of YAML or JSON and the line where it starts. The zero tree
// is null and has no line.
type tree struct {
	line   int
	fields map[string]tree // of a mapping
	items  []tree          // of a sequence
	scalar any             // a string, a bool, a number
}

func (t tree) isNull() bool { return t.line == 0 }

// kind describes the value for messages.
func (t tree) kind() string {
	switch t.scalar.(type) {
	case nil:
		if t.fields != nil {
			return "a mapping"
		}
		return "a list"
	case string:
		return fmt.Sprintf("the string %q", t.scalar)
	case bool:
		return fmt.Sprintf("the boolean %v", t.scalar)
	case int, int64, uint64, float64, json.Number:
		return fmt.Sprintf("the number %v", t.scalar)
	}
	return fmt.Sprint(t.scalar)
}

// at returns the value at a path of keys, or null.
func (t tree) at(keys ...string) tree {
	for _, k := range keys {
		t = t.fields[k]
	}
	return t
}

// lineIn returns the line of t, a part of outer, or outer's line if t is null.
func (t tree) lineIn(outer tree) int {
	if t.isNull() {
		return outer.line
	}
	return t.line
}

// text returns the value if it is a string, else "".
func (t tree) text() string {
	s, _ := t.scalar.(string)
	return s
}

// UnmarshalYAML implements yaml.Unmarshaler. The parser exposes lines in errors
// only, so it first unmarshals into a type that no value has, and reads the line
// and the value's tag from the error.
func (t *tree) UnmarshalYAML(unmarshal func(any) error) error {
	var impossible chan int
	err := unmarshal(&impossible)
	var tag string
	if _, scan := fmt.Sscanf(firstFault(err), "line %d: cannot unmarshal %s", &t.line, &tag); scan != nil {
		return err
	}
	switch tag {
	case "!!map":
		t.fields = map[string]tree{}
		return unmarshal(&t.fields)
	case "!!seq":
		return unmarshal(&t.items)
	}
	return unmarshal(&t.scalar)
}

func firstFault(err error) string {
	if all, ok := errors.AsType[*yaml.TypeError](err); ok {
		return all.Errors[0]
	}
	return ""
}
