package corefile

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Parse parses the text of a Corefile. file is its path; errors contain it, and
// imports are relative to its directory. Parse returns every error and, if the
// braces are balanced, the server blocks that it could parse.
//
// Parse uses the lexer of caddyfile but not its parser, which groups directives
// by name, loses their order and the positions of keys, and stops at the first
// error.
func Parse(file string, text []byte) ([]Server, error) {
	s := newSource()
	return s.parse(file, text)
}

func (s *source) parse(file string, text []byte) ([]Server, error) {
	if i := bytes.IndexFunc(text, isControl); i >= 0 {
		at := Token{File: file, Line: 1 + bytes.Count(text[:i], []byte("\n"))}
		return nil, at.Errorf("", "want text in UTF-8, got byte 0x%02x", text[i])
	}
	if manyWords(text) {
		return nil, (&Token{File: file, Line: 1}).Errorf("", tooManyWords, maxWords)
	}

	s.lines = map[string][][]byte{file: bytes.Split(text, []byte("\n"))}
	s.push(Token{}, file, nil, lex(file, text, false))

	var servers []Server
	balanced := true
	for {
		keys, braces := s.keys()
		if len(keys) == 0 && !braces {
			break
		}
		if len(keys) == 1 && braces && snippet(keys[0].Text) {
			balanced = s.define(keys[0]) && balanced
			continue
		}

		server := Server{Keys: keys}
		ok := true
		if _, more := s.peek(); more || braces {
			server.Directives, ok = s.body("", braces, keys)
		}
		if ok && !braces && len(server.Directives) == 0 && prose(keys) {
			s.fail(keys[0], "not a server block: want ZONE {, and directives up to a }")
		}

		balanced = balanced && ok
		if len(keys) > 0 {
			servers = append(servers, server)
		}
	}

	if !balanced {
		servers = nil
	}
	if len(servers)+len(s.errs) == 0 {
		s.fail(Token{File: file, Line: 1}, "no server block")
	}
	return servers, errors.Join(s.errs...)
}

// isControl reports whether r is a control character other than white space.
// After a full disk or a power failure, files may contain zero bytes.
func isControl(r rune) bool { return unicode.IsControl(r) && r < utf8.RuneSelf && !unicode.IsSpace(r) }

// keys reads the keys of a block and the opening brace, if any. The keys are on
// one line unless a comma continues it.
func (s *source) keys() (keys []Token, braces bool) {
	another, unset := true, ""
	for {
		w, ok := s.peek()
		switch {
		case !ok:
			return keys, false
		case w.Text == "{":
			s.take()
			if len(keys) == 0 {
				w.Unset = unset
				s.fail(w.Token, "a server block needs a zone before its {")
			}
			return keys, true

		case w.Text == "}":
			s.take()
			s.fail(w.Token, "} without a {")
			continue
		case w.first && !another:
			return keys, false
		}

		s.take()
		t := expanded(w.Token)
		if t.Text == "" {
			unset = t.Unset
		}

		another = strings.HasSuffix(t.Text, ",")
		for key := range strings.SplitSeq(t.Text, ",") {
			if key != "" {
				t.Text = key
				keys = append(keys, t)
			}
		}
		another = another || len(keys) == 0
	}
}

// prose reports whether the keys of a block without braces and directives look
// like ordinary text: none has a port.
func prose(keys []Token) bool {
	return len(keys) > 0 && !slices.ContainsFunc(keys, func(k Token) bool { return strings.Contains(k.Text, ":") })
}

func snippet(key string) bool {
	return strings.HasPrefix(key, "(") && strings.HasSuffix(key, ")")
}

// define stores the words of a snippet without expanding its imports: they are
// expanded where the snippet is imported.
func (s *source) define(key Token) bool {
	name := key.Text[1 : len(key.Text)-1]

	var words []word
	for depth := 1; ; {
		if len(s.stack) == 0 || len(s.top().words) == 0 {
			s.fail(key, "snippet %s: its { is never closed", key.Text)
			return false
		}

		w := s.take()
		switch w.Text {
		case "{":
			depth++
		case "}":
			depth--
		}
		if depth == 0 {
			break
		}
		words = append(words, w)
	}

	if _, ok := s.snippets[name]; ok {
		s.fail(key, "snippet %s is defined twice", key.Text)
	}
	s.snippets[name] = words
	return true
}

// body reads directives up to the closing brace, or to the end of the file if
// there is no opening brace. path is the path of the enclosing directive.
func (s *source) body(path string, braces bool, opened []Token) (ds []Directive, ok bool) {
	for {
		w, more := s.peek()
		switch {
		case !more:
			if braces && len(opened) > 0 {
				s.unclosed(opened[0])
			}
			return ds, !braces

		case w.Text == "}":
			s.take()
			if !braces {
				s.fail(w.Token, "} without a {")
			} else if len(opened) > 0 {
				s.closes(opened[0], w.Token)
			}
			return ds, braces

		case w.Text == "{":
			s.take()
			s.fail(w.Token, "{ without a word before it")
			if _, ok := s.body(path, true, []Token{w.Token}); !ok {
				return ds, false
			}
			continue
		}

		d, ok := s.directive(path)
		ds = append(ds, d)
		if !ok {
			return ds, false
		}
	}
}

// directive reads one line and the braces at its end, if any.
func (s *source) directive(path string) (d Directive, ok bool) {
	d.Token = expanded(s.take().Token)
	d.Path = d.Text
	if path != "" {
		d.Path = path + ": " + d.Text
	}

	for {
		w, more := s.peek()
		switch {
		case more && w.Text == "{":
			s.take()
			d.Block = true
			d.Body, ok = s.body(d.Path, true, []Token{d.Token})
			return d, ok
		case !more || w.first || w.Text == "}":
			return d, true
		}

		s.take()
		d.Args = append(d.Args, expanded(w.Token))
	}
}
