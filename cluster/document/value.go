package document

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v2"
)

// A Value is a value of YAML or JSON and the line where it starts. The zero Value
// is null and has no line.
type Value struct {
	Line   int
	Fields map[string]Value // of a mapping
	Items  []Value          // of a sequence
	Scalar any              // a string, a bool, a number
}

// IsNull reports whether the value is null or absent.
func (v Value) IsNull() bool { return v.Line == 0 }

// Kind describes the value for messages.
func (v Value) Kind() string {
	switch v.Scalar.(type) {
	case nil:
		if v.Fields != nil {
			return "a mapping"
		}
		return "a list"
	case string:
		return fmt.Sprintf("the string %q", v.Scalar)
	case bool:
		return fmt.Sprintf("the boolean %v", v.Scalar)
	case int, int64, uint64, float64, json.Number:
		return fmt.Sprintf("the number %v", v.Scalar)
	}
	return fmt.Sprint(v.Scalar)
}

// At returns the value at a path of keys, or null.
func (v Value) At(keys ...string) Value {
	for _, k := range keys {
		v = v.Fields[k]
	}
	return v
}

// LineIn returns the line of v, a part of outer, or outer's line if v is null.
func (v Value) LineIn(outer Value) int {
	if v.IsNull() {
		return outer.Line
	}
	return v.Line
}

// Text returns the value if it is a string, else "".
func (v Value) Text() string {
	s, _ := v.Scalar.(string)
	return s
}

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) {
	switch {
	case v.Fields != nil:
		return json.Marshal(v.Fields)
	case v.Items != nil:
		return json.Marshal(v.Items)
	}
	return json.Marshal(v.Scalar)
}

// UnmarshalYAML implements yaml.Unmarshaler. The parser exposes lines in errors
// only, so it first unmarshals into a type that no value has, and reads the line
// and the value's tag from the error.
func (v *Value) UnmarshalYAML(unmarshal func(any) error) error {
	var impossible chan int
	err := unmarshal(&impossible)
	var tag string
	if _, scan := fmt.Sscanf(firstFault(err), "line %d: cannot unmarshal %s", &v.Line, &tag); scan != nil {
		return err
	}
	switch tag {
	case "!!map":
		v.Fields = map[string]Value{}
		return unmarshal(&v.Fields)
	case "!!seq":
		return unmarshal(&v.Items)
	}
	return unmarshal(&v.Scalar)
}

func firstFault(err error) string {
	if all, ok := errors.AsType[*yaml.TypeError](err); ok {
		return all.Errors[0]
	}
	return ""
}
