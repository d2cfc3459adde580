package corefile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLayout(t *testing.T) {
	for _, c := range []struct{ name, text, want, err string }{
		{"indentation and spaces", ".:53   {\nerrors\n\tforward  . 1.1.1.1\t{\nmax_fails   3\n  }\n}", ".:53 {\n    errors\n    forward . 1.1.1.1 {\n        max_fails 3\n    }\n}\n", ""},
		{"blank lines", "\n\na {\n\n\n  log\n\n\n  errors\n\n}\n\n\nb {\n}\n\n", "a {\n    log\n\n    errors\n}\n\nb {\n}\n", ""},
		{"comments", "# one\n  #two   \na { # three\n # four\nlog#five\n} # six", "# one\n#two\na { # three\n    # four\n    log#five\n} # six\n", ""},
		{"quotes", "a {\n  template IN A {\n answer   \"{{ .Name }}   60\n  IN A\"   x\n }\n}", "a {\n    template IN A {\n        answer \"{{ .Name }}   60\n  IN A\" x\n    }\n}\n", ""},
		{"an escaped quote, and one inside a word", "a {\n log \"b \\\" c\"  d\"e\n}", "a {\n    log \"b \\\" c\" d\"e\n}\n", ""},
		{"no braces, several keys", "a,\nb   c\nlog", "a,\nb c\nlog\n", ""},
		{"carriage returns and a byte order mark", "\uFEFFa {\r\n log\r\n}\r\n", "a {\n    log\n}\n", ""},
		{"snippets and imports", "(s) {\nlog\n}\na {\nimport s\n}\n", "(s) {\n    log\n}\na {\n    import s\n}\n", ""},
		{"bytes that are not UTF-8", "a {\n log # caf\xe9\n\"\xff\" \uFFFD\n}\n", "a {\n    log # caf\xe9\n    \"\xff\" \uFFFD\n}\n", ""},
		{"nothing", "\n\n", "", ""},
		{"an unclosed brace", "a {\nlog\n", "", "file:1: the { is not closed"},
		{"a brace too many", "a {\n}\n}\n", "", "file:3: } without {"},
		{"an unclosed quote", "a {\nlog \"b\n}\n", "", "file:2: the quote is not closed"},
	} {
		got, err := Layout("file", []byte(c.text))
		if text := errorText(err); string(got) != c.want || text != c.err {
			t.Errorf("%s: Layout(%q): got\n%s\nerror %q; want\n%s\nerror %q", c.name, c.text, got, text, c.want, c.err)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The Corefiles of the field keep their servers, and a second layout changes nothing.
func TestLayoutOfCorefiles(t *testing.T) {
	files, err := filepath.Glob("../testdata/corefile/*")
	if err != nil || len(files) < 10 {
		t.Fatalf("got %d files, error %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a directory
		}
		checkLayout(t, file, text)
	}
}

func checkLayout(t *testing.T, file string, text []byte) {
	t.Helper()
	once, err := Layout(file, text)
	if err != nil {
		if strings.Contains(err.Error(), "defect") {
			t.Errorf("Layout(%q): %v", text, err)
		}
		return
	}
	if twice, err := Layout(file, once); err != nil || !bytes.Equal(once, twice) {
		t.Errorf("Layout of\n%s\ngot\n%s\nerror %v, want no change", once, twice, err)
	}
}

func FuzzLayout(f *testing.F) {
	f.Add([]byte(".:53 {\n  log \"a # b\" # c\n}\r\n"))
	f.Add([]byte("a{ b }\n\"{\"\n\\\"\n"))
	f.Add([]byte("{# 0\n}"))
	f.Add([]byte(" \ufeff\xff{ a\n"))
	f.Add([]byte("\ufeff\n\ufeff\ufeffa\n"))
	f.Add([]byte("00#0 \""))
	f.Add([]byte("a\xd7\r\xa7"))
	f.Add([]byte("\xe2\r\x82\r\r\xac"))
	f.Fuzz(func(t *testing.T, text []byte) { checkLayout(t, "file", text) })
}
