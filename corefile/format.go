package corefile

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Format formats server blocks as the text of a Corefile from which Parse reads
// the same keys and directives. It returns an error that joins the invalid words: Parse
// would read them as a brace, an environment variable, an import or a snippet, or they
// cannot be quoted.
func Format(servers []Server) (string, error) {
	var w textWriter
	for i, s := range servers {
		if i > 0 {
			w.text.WriteString("\n")
		}
		w.server(s)
	}
	if len(w.errs) > 0 {
		return "", errors.Join(w.errs...)
	}
	return w.text.String(), nil
}

type textWriter struct {
	text strings.Builder
	errs []error
}

func (w *textWriter) server(s Server) {
	if len(s.Keys) == 0 {
		w.errs = append(w.errs, errors.New("a server block without a key"))
	}
	for i, k := range s.Keys {
		switch {
		case k.Text == "" || strings.Contains(k.Text, ","), i == 0 && k.Text == "import",
			len(s.Keys) == 1 && snippet(k.Text):
			w.errs = append(w.errs, k.Errorf("", "%q cannot be a key", k.Text))
		}
		w.word(k, "")
		w.text.WriteString(" ")
	}
	w.braces(s.Directives, 0)
}

// braces writes directives between braces. depth is the indentation of the line
// with the opening brace.
func (w *textWriter) braces(ds []Directive, depth int) {
	w.text.WriteString("{\n")
	for _, d := range ds {
		w.indent(depth + 1)
		if d.Text == "import" {
			w.errs = append(w.errs, d.Errorf("%q cannot be the first word of a line", d.Text))
		}

		w.word(d.Token, d.Path)
		for _, a := range d.Args {
			w.text.WriteString(" ")
			w.word(a, d.Path)
		}
		if d.Block || len(d.Body) > 0 {
			w.text.WriteString(" ")
			w.braces(d.Body, depth+1)
		} else {
			w.text.WriteString("\n")
		}
	}
	w.indent(depth)
	w.text.WriteString("}\n")
}

func (w *textWriter) indent(depth int) { w.text.WriteString(strings.Repeat("    ", depth)) }

func (w *textWriter) word(t Token, path string) {
	text, ok := quoted(t.Text)
	if !ok {
		w.errs = append(w.errs, t.Errorf(path, "%q cannot be written in a Corefile", t.Text))
	}
	w.text.WriteString(text)
}

// Word returns text as a word of a Corefile, quoted if necessary, or an error if
// a Corefile cannot contain it.
func Word(text string) (string, error) {
	written, ok := quoted(text)
	if !ok {
		return "", fmt.Errorf("%q cannot be written in a Corefile", text)
	}
	return written, nil
}

// quoted returns text as a word, in quotes if necessary, and whether that is
// possible.
func quoted(text string) (string, bool) {
	switch {
	case text == "{" || text == "}", expanded(Token{Text: text}).Text != text,
		!utf8.ValidString(text), strings.ContainsFunc(text, isControl):
		return "", false
	case text != "" && text[0] != '"' && !strings.ContainsFunc(text, endsWord):
		return text, true
	}
	return quote(text)
}

// endsWord reports whether c ends a word or starts a comment. A byte order mark
// is ignored at the start of a file.
func endsWord(c rune) bool { return unicode.IsSpace(c) || c == '#' || c == '\uFEFF' }

// quote returns text in quotes. The lexer reads a backslash as itself unless a
// quote follows; before a quote, an odd number of backslashes escapes it. So
// quotable text has an even number of backslashes before each quote and at its
// end.
func quote(text string) (string, bool) {
	var out strings.Builder
	run := 0
	out.WriteByte('"')
	for i := range len(text) {
		c := text[i]
		if c == '"' {
			if run%2 == 1 {
				return "", false
			}
			out.WriteByte('\\')
		}

		out.WriteByte(c)
		if run++; c != '\\' {
			run = 0
		}
	}
	out.WriteByte('"')
	return out.String(), run%2 == 0
}
