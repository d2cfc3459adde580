package corefile

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"
)

// Limits on imports, so that those which import each other end in an error.
const (
	maxDepth   = 50     // imports inside imports
	maxImports = 10_000 // in one Corefile
)

// A word is a token as it was lexed.
type word struct {
	Token
	first bool // on its line, or of what was imported
}

func lex(file string, text []byte) (words []word) {
	lexer := caddyfile.NewDispenser(file, bytes.NewReader(text))
	end := 0 // the line on which the token before ends
	for lexer.Next() {
		t := Token{lexer.Val(), file, lexer.Line()}
		words = append(words, word{t, t.Line > end})
		end = t.Line + strings.Count(t.Text, "\n")
	}
	return words
}

// A source is the words that are still to be read: the Corefile's own, and on
// top of them those of the imports that are under way.
type source struct {
	stack    [][]word
	snippets map[string][]word
	imports  int
	read     map[string][]byte // contents of imported files; nil if one could not be read
	errs     []error
}

// peek returns the next word, with imports replaced by what they import.
func (s *source) peek() (word, bool) {
	for {
		top := len(s.stack) - 1
		switch {
		case top < 0:
			return word{}, false
		case len(s.stack[top]) == 0:
			s.stack = s.stack[:top]
		case s.stack[top][0].first && s.stack[top][0].Text == "import":
			s.expand(s.take())
		default:
			return s.stack[top][0], true
		}
	}
}

// take removes the word that peek would look at first.
func (s *source) take() word {
	top := len(s.stack) - 1
	w := s.stack[top][0]
	s.stack[top] = s.stack[top][1:]
	return w
}

// line takes the words that follow on this line, up to a closing brace.
func (s *source) line() (rest []word) {
	for top := len(s.stack) - 1; len(s.stack[top]) > 0; {
		if w := s.stack[top][0]; w.first || w.Text == "}" {
			break
		}
		rest = append(rest, s.take())
	}
	return rest
}

func (s *source) fail(at Token, text string) {
	s.errs = append(s.errs, at.Errorf("", "%s", text))
}

// expand puts what an import names in front of the rest.
func (s *source) expand(at word) {
	rest := s.line()
	if len(rest) != 1 {
		s.fail(at.Token, "import: want one snippet, file or pattern")
		return
	}
	if s.imports++; s.imports > maxImports || len(s.stack) > maxDepth {
		if s.imports <= maxImports+1 {
			s.fail(at.Token, "import: "+rest[0].Text+" imports itself, or too much is imported")
		}
		s.imports = maxImports + 1
		return
	}
	name := environment(rest[0].Text)
	if words, ok := s.snippets[name]; ok {
		s.push(words)
		return
	}
	if strings.TrimSpace(name) == "" {
		s.fail(at.Token, "import: the name is empty")
		return
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(at.File), name)
	}
	files, err := filepath.Glob(name)
	if err != nil {
		s.fail(at.Token, "import: "+name+": "+err.Error())
		return
	}
	if len(files) == 0 && !strings.ContainsAny(name, "*?[") {
		s.fail(at.Token, "import: no snippet or file "+rest[0].Text)
		return
	}
	for _, file := range slices.Backward(files) {
		text, err := s.file(file)
		if err != nil {
			s.fail(at.Token, "import: "+err.Error())
			continue
		}
		s.push(lex(file, text))
	}
}

// file reads a file once, however often it is imported.
func (s *source) file(name string) ([]byte, error) {
	if text := s.read[name]; text != nil {
		return text, nil
	}
	if s.read == nil {
		s.read = map[string][]byte{}
	}
	text, err := Text(name)
	if err != nil {
		s.read[name] = nil
		return nil, err
	}
	s.read[name] = append([]byte{}, text...) // an empty file is not nil
	return text, nil
}

func (s *source) push(words []word) {
	if len(words) > 0 {
		words = slices.Clone(words)
		words[0].first = true
		s.stack = append(s.stack, words)
	}
}

// environment replaces {$NAME} and {%NAME%} by the variable's value, which is
// not looked at again; an unknown one is empty.
func environment(s string) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(s, '{')
		if i < 0 || i+1 == len(s) {
			return out.String() + s
		}
		end := map[byte]string{'$': "}", '%': "%}"}[s[i+1]]
		n := -1
		if end != "" {
			n = strings.Index(s[i+2:], end)
		}
		if n < 1 {
			out.WriteString(s[:i+1])
			s = s[i+1:]
			continue
		}
		out.WriteString(s[:i] + os.Getenv(s[i+2:i+2+n]))
		s = s[i+2+n+len(end):]
	}
}
