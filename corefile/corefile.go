// Package corefile turns the text of a Corefile into directives with their
// positions, in source order, and reads their options. It knows the grammar
// (that of coredns/caddy's caddyfile package: snippets, imports, environment
// variables, quotes, comments) but no directive.
package corefile

import (
	"errors"
	"fmt"
	"strings"
)

// A Token is one word and where it stands.
type Token struct {
	Text string
	File string
	Line int
}

// A Directive is one use of a word: its arguments, and the lines in its braces,
// which have the same form.
type Directive struct {
	Token // the word itself
	Args  []Token
	Body  []Directive
	Block bool // there were braces
	// Path is the words that led here, for errors: "kubernetes: ttl".
	Path string
}

// A Server is one server block: its keys ("cluster.local:53") and directives.
type Server struct {
	Keys       []Token
	Directives []Directive
}

// An Error is what is wrong at one place. Its text is
// "Corefile:7: kubernetes: ttl: want 0..3600, got "x"".
type Error struct {
	File string
	Line int
	Path string
	Text string
	Err  error // what Text was made of, if it was an error
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	return b.String() + e.Text
}

// Errorf makes an error at t; path is the words that led there. The format may
// have a %w.
func (t Token) Errorf(path, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{t.File, t.Line, path, err.Error(), errors.Unwrap(err)}
}

// Errorf makes an error at d. The format may have a %w.
func (d Directive) Errorf(format string, args ...any) error {
	return d.Token.Errorf(d.Path, format, args...)
}
