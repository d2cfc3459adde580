package document

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"YAML", "a: {b: [1, x, true, 1.5, ~]}\n---\n# empty\n---\nc: \"d\"\n", `{"a":{"b":[1,"x",true,1.5,null]}} {"c":"d"}`},
		{"JSON", "\ufeff {\"a\": [1e3, \"\\ud83d\\ude00\", null], \"b\": []}\n{}", `{"a":[1e3,"😀",null],"b":null} {}`},
		{"YAML's flow style", "{a: b}\n", `{"a":"b"}`},
		{"keys that are numbers", "1: 2\n", `{"1":2}`},
		{"merge", "a: &a {b: c}\nd: {<<: *a, b: e}\n", `{"a":{"b":"c"},"d":{"b":"e"}}`},
	} {
		docs, err := Parse("f", []byte(c.text))
		var got []string
		for _, doc := range docs {
			text, err := json.Marshal(doc)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			got = append(got, string(text))
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s, %q: got %s, %v; want %s", c.name, c.text, got, err, c.want)
		}
	}
}

func TestParseLines(t *testing.T) {
	for _, text := range []string{"a:\n  b: 1\n  c:\n  - x\n", "{\"a\": {\n\"b\": 1, \"c\":\n\n[\"x\"]}}"} {
		docs, err := Parse("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		b, x := docs[0].At("a", "b"), docs[0].At("a", "c")
		if b.Line != 2 || len(x.Items) != 1 || x.Items[0].Line != 4 {
			t.Errorf("%q: got lines %d and %v, want 2 and 4", text, b.Line, x.Items)
		}
		if missing := docs[0].At("a", "d", "e"); !missing.IsNull() || missing.LineIn(b) != 2 {
			t.Errorf("%q: a missing value: got %+v, want null and the line of its parent", text, missing)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"f", "a: b\na: c\n", `f:2: key "a" already set in map`},
		{"f", "a: b\na: c\ns: |\n  cat <<EOF\n", `f:2: key "a" already set in map`},
		{"f", "{\"a\": 1,\n\"a\": 2}", `f:2: key "a" already set in map`},
		{"f.json", "{\"a\":\n", "f.json:1: unexpected EOF"},
		{"f", "a: [\n", "f:1: did not find expected node content"},
		{"f", "{{a}}: b\n", "f:1: a mapping or list as a key: if this is a template, render it first"},
	} {
		if _, err := Parse(c.file, []byte(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%s %q: got %v, want %s", c.file, c.text, err, c.want)
		}
	}
}

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if name, text, err := Read(file, nil, 1<<20); name != file || len(text) != 1<<20 || err != nil {
		t.Errorf("a file of 1 MB: got name %s, %d bytes, %v", name, len(text), err)
	}
	if name, text, err := Read("-", strings.NewReader("x"), 1<<20); name != "(standard input)" || string(text) != "x" || err != nil {
		t.Errorf("standard input: got name %s, %q, %v", name, text, err)
	}
	_, _, err := Read("-", strings.NewReader(strings.Repeat("x", 1<<20+1)), 1<<20)
	if want := "read (standard input): larger than 1 MB"; err == nil || err.Error() != want {
		t.Errorf("more than the limit: got %v, want %s", err, want)
	}
	if _, _, err := Read(file+"x", nil, 1); !os.IsNotExist(err) {
		t.Errorf("a missing file: got %v, want an error that says so", err)
	}
}
