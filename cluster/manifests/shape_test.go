package manifests

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// Documents that differ in words only have a template, and its JSON is the library's.
func TestShapeTemplate(t *testing.T) {
	for _, c := range []struct {
		first, second string
		want          bool // there is a template
	}{
		{service("a", "10.0.0.1"), service("b2", "10.0.0.2"), true},
		{"a: 1\n", "a: x\n", true},
		{"a: null\n", "a: 0x1F\n", true},
		{"a: [1, y, 2001-12-14, 1e3]\n", "a: [off, 1_0, 1.2.3, 190:20:30]\n", false}, // a colon word is not a plain word
		{"a: [x, 1.5]\n", "a: [2001-12-14, 0777]\n", true},
		{"a: \"1\"\nb: 'true'\n", "a: \"2\"\nb: 'no'\n", true},
		{"- fd00::1\n- nginx:1\n", "- 2001:db8::2\n- 12:30:45\n", true},
		{"a: [fd00::1]\n", "a: [fd00::2]\n", true},
		{"# one\na: x # two\r\n", "# three: four\na: y # 'five\r\n", true},
		{"{a: {b: x}, c: [y]}\n", "{a: {b: z}, c: [1]}\n", true},
		{"a: x\na: y\n", "a: v\na: w\n", false},
		{"a: x y\n", "a: v w\n", false},
		{"a: x\n  y\n", "a: v\n  w\n", false},
		{"a: -x\n", "a: -1\n", false},
		{"a: \"x y\"\n", "a: \"v w\"\n", false},
		{"a: '\"x\"'\n", "a: '\"y\"'\n", false},
		{"a: x\"y\"\n", "a: v\"w\"\n", false},
		{"a: \"\n # x\n\"\n", "a: \"\n # y\n\"\n", false},
		{"a: {b}\n", "a: {c}\n", false},
		{"a: b: c\n", "a: b: d\n", false},
		{"a: |\n  x\n", "a: |\n  y\n", false},
		{"a: &b x\nc: *b\n", "a: &b y\nc: *b\n", false},
		{"a: " + strings.Repeat("x", 300) + "\n", "a: " + strings.Repeat("y", 300) + "\n", false},
	} {
		s, w := newShapes(), &words{scalars: map[string]string{}}
		made := false
		for _, text := range []string{c.first, c.second} {
			if !w.split([]byte(text)) {
				continue
			}
			made = s.template(w) != nil
			same(t, s, text)
		}
		if made != c.want {
			t.Errorf("%q and %q: template %v, want %v", c.first, c.second, made, c.want)
		}
	}
}

// same compares the JSON of a document, and its head, with the library's.
func same(t *testing.T, s *shapes, text string) {
	t.Helper()
	raw, h, err := s.toJSON([]byte(text))
	want, wantErr := yamlToJSON([]byte(text))
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%q: error %v, want %v", text, err, wantErr)
	}
	if err != nil {
		return
	}
	var got, wanted any
	if json.Unmarshal(raw, &got) != nil || json.Unmarshal(want, &wanted) != nil || !reflect.DeepEqual(got, wanted) {
		t.Fatalf("%q: got %s, want %s", text, raw, want)
	}
	if h == nil {
		return
	}
	var head head
	if err := json.Unmarshal(want, &head); err != nil || !reflect.DeepEqual(*h, head) {
		t.Fatalf("%q: head %+v, want %+v and no error, got %v", text, *h, head, err)
	}
}

// FuzzShape replaces the words of a document by others, and compares the JSON with the
// library's.
func FuzzShape(f *testing.F) {
	for _, text := range []string{service("a", "10.0.0.1"), slice("a", "b", "- {addresses: [\"::1\"], x: 'y'}"),
		"a:\n- b: 1\n  c: 'x'\n- - y\n# z\n", "{a: [b, c:d], \"e\" : f}\n", "- x\n -y\n", "a: \"b\n\n  c\"\n"} {
		f.Add([]byte(text), uint64(1))
	}
	others := []string{"a", "y", "no", "True", "null", "1", "007", "0x1f", "1.5", "1e9", "10.0.0.1", "2001-12-14", "web-1", "a.b/c", "x-", "NaN", "seamark-word-1", "longer-than-five"}
	colons := []string{"a:b", "1:2", "fd00::1", "12:30:45", "2001-12-14T21:59:43Z", "a:b:c/d"}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		s, w := newShapes(), &words{scalars: map[string]string{}}
		if !w.split(data) {
			return
		}
		s.template(w)
		if s.template(w) == nil {
			return
		}
		same(t, s, string(data))
		random := rand.New(rand.NewPCG(seed, 0))
		for range 3 {
			var text bytes.Buffer
			for _, c := range w.shape {
				switch c {
				case plainWord, quotedWord:
					text.WriteString(others[random.IntN(len(others))])
				case colonWord:
					text.WriteString(colons[random.IntN(len(colons))])
				default:
					text.WriteByte(c)
				}
			}
			other := &words{}
			if !other.split(text.Bytes()) || !bytes.Equal(other.shape, w.shape) {
				t.Fatalf("%q has another shape than %q", text.Bytes(), data)
			}
			same(t, s, text.String())
		}
	})
}
