// Package corefile parses the text of a Corefile into directives with their
// positions, in source order, and reads their options. It implements the grammar
// of coredns/caddy's caddyfile package (snippets, imports, environment variables,
// quotes, comments) and knows no directive.
package corefile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Token is a word of a Corefile and its position.
type Token struct {
	Text string
	File string
	Line int
	// Imported reports whether File is a file that the Corefile imports.
	Imported bool
	// Unset lists the environment variables in the word that are not set,
	// separated by commas.
	Unset string
}

// OfFlag reports whether a flag of the command line, which is the File, stands for t: it is in no
// Corefile.
func (t Token) OfFlag() bool { return t.Line == 0 && strings.HasPrefix(t.File, "--") }

// A Directive is one use of a directive or of an option: its name, its arguments,
// and the lines between its braces, which have the same form.
type Directive struct {
	Token // the name
	Args  []Token
	Body  []Directive
	Block bool // there are braces, which may be empty
	// Path is the names that enclose the directive and its own, for errors:
	// "kubernetes: ttl".
	Path string
	// Usage is the syntax that errors show: "forward FROM TO...".
	Usage string
}

// IndexOf returns the index of the first directive with one of the names, -1 if there is none.
func IndexOf(list []Directive, names ...string) int {
	return slices.IndexFunc(list, func(d Directive) bool { return slices.Contains(names, d.Text) })
}

// A Server is one server block: its keys ("cluster.local:53") and directives.
type Server struct {
	Keys       []Token
	Directives []Directive
}

// An Error is an error at a position in a Corefile. Its text has the form
// `Corefile:7: kubernetes: ttl: want 0..3600, got "x"`.
type Error struct {
	File string
	Line int
	Path string
	Text string
	Err  error // the error that Text was made from, if any
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	return b.String() + e.Text
}

// Errorf returns an error at t. The path is the names that enclose t, and the
// format may have a %w.
func (t Token) Errorf(path, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{t.File, t.Line, path, err.Error() + unset(t), errors.Unwrap(err)}
}

// Errorf returns an error at d. The format may have a %w.
func (d Directive) Errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return d.at(err.Error(), errors.Unwrap(err))
}

// Each returns each of the errors that err joins as an error at d, joined. A text
// that begins with d's name does not repeat it.
func (d Directive) Each(err error) error {
	var errs []error
	for _, e := range All(err) {
		errs = append(errs, d.at(strings.TrimPrefix(e.Error(), d.Text+": "), e))
	}
	return errors.Join(errs...)
}

func (d Directive) at(text string, cause error) error {
	return &Error{d.File, d.Line, d.Path, text + unset(append([]Token{d.Token}, d.Args...)...), cause}
}

// unset returns the end of an error about words with unset environment variables.
func unset(words ...Token) string {
	var names []string
	for _, w := range words {
		if w.Unset != "" {
			names = append(names, w.Unset)
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case len(names) == 1 && !strings.Contains(names[0], ","):
		return "; environment variable " + names[0] + " is not set"
	default:
		return "; environment variables " + strings.Join(names, ", ") + " are not set"
	}
}

// plain matches names and addresses.
var plain = regexp.MustCompile(`^[\w.:/*\[\]-]+$`)

// longestShown is the greatest length of a word that an error quotes.
const longestShown = 255

// Shown reports whether an error may quote a word that is not valid in a
// Corefile. A file that is imported by mistake may contain secrets.
func (t Token) Shown() bool {
	return !t.Imported && len(t.Text) <= longestShown && plain.MatchString(t.Text)
}

// Describe returns the word between quotes, or the name of its kind if it must not
// be shown.
func (t Token) Describe(kind string) string {
	if t.Shown() {
		return fmt.Sprintf("%s %q", kind, t.Text)
	}
	return kind
}
