package corefile

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Format writes server blocks as the text of a Corefile. Parse reads the same keys
// and directives from it. Words that no Corefile can have are errors, all of them
// together: what Parse would take for a brace, a variable of the environment, an
// import or a snippet, and the few texts that its quotes cannot hold.
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
		case k.Text == "" || strings.Contains(k.Text, ","), i == 0 && k.Text == "import", len(s.Keys) == 1 && snippet(k.Text):
			w.errs = append(w.errs, k.Errorf("", "%q cannot be a key", k.Text))
		}
		w.word(k, "")
		w.text.WriteString(" ")
	}
	w.braces(s.Directives, 0)
}

// braces writes lines between braces; depth is that of the line they begin on.
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

// Word writes a word so that Parse reads it again, for whoever writes the text of a
// Corefile. A word that none can have is an error.
func Word(text string) (string, error) {
	written, ok := quoted(text)
	if !ok {
		return "", fmt.Errorf("%q cannot be written in a Corefile", text)
	}
	return written, nil
}

// quoted is the text of a word, between quotes if it needs them.
func quoted(text string) (string, bool) {
	switch {
	case text == "{" || text == "}", expanded(Token{Text: text}).Text != text, !utf8.ValidString(text), strings.ContainsFunc(text, garbage):
		return "", false
	case text != "" && text[0] != '"' && !strings.ContainsFunc(text, special):
		return text, true
	}
	return between(text)
}

// special are the characters that end a word, or begin a comment. A mark of the
// bytes' order vanishes at the beginning of a file.
func special(c rune) bool { return unicode.IsSpace(c) || c == '#' || c == '\uFEFF' }

// between puts text in quotes. There a backslash stands for itself unless it is in
// front of a quote; but what decides is whether one before it has taken it: so a run
// of them must be even where a quote follows.
func between(text string) (string, bool) {
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
