package corefile

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"
)

// Limits, so that a Corefile cannot expand without end.
const (
	maxDepth   = 50      // imports inside imports
	maxImports = 10_000  // in one Corefile
	maxWords   = 500_000 // in one Corefile with its imports; a word needs about 500 bytes
)

const tooManyWords = "more than %d words: have the directives hosts and file read long lists from files"

// A word is a token and its position on its line.
type word struct {
	Token
	first bool // the first word of its line or of an import
}

func lex(file string, text []byte, imported bool) (words []word) {
	lexer := caddyfile.NewDispenser(file, bytes.NewReader(text))

	end := 0 // the line on which the previous token ends
	for lexer.Next() {
		t := Token{Text: lexer.Val(), File: file, Line: lexer.Line(), Imported: imported}
		words = append(words, word{t, t.Line > end})
		end = t.Line + strings.Count(t.Text, "\n")
	}
	return words
}

// manyWords reports whether a text may have more than maxWords words. It counts without
// memory, and counts comments, quotes and commas, which separate keys, too.
func manyWords(text []byte) bool {
	count := 0
	for field := range bytes.FieldsSeq(text) {
		if count += 1 + bytes.Count(field, []byte(`"`)) + bytes.Count(field, []byte(",")); count > maxWords {
			return true
		}
	}
	return false
}

// A source has the words that the parser has not read yet: the rest of the Corefile
// and, before it, the rest of the imports in progress.
type source struct {
	stack    []*imported
	snippets map[string][]word
	imports  int
	words    int                 // read so far, imports included
	read     map[string][]byte   // contents of imported files, nil if unreadable
	patterns map[string][]string // the imported files by the pattern that named them
	lines    map[string][][]byte // of the Corefile and of imported files
	open     *Token              // the word before a { that is probably not closed
	errs     []error
}

func newSource() *source {
	return &source{snippets: map[string][]word{}, read: map[string][]byte{}, patterns: map[string][]string{}}
}

// imported is the rest of a file or of a snippet.
type imported struct {
	words []word
	name  string    // as an import names it
	by    *imported // the file or snippet with the import; nil for the Corefile
}

// top returns the words that are read next.
func (s *source) top() *imported { return s.stack[len(s.stack)-1] }

// peek returns the next word after expanding the imports before it.
func (s *source) peek() (word, bool) {
	for len(s.stack) > 0 {
		words := s.top().words
		switch {
		case len(words) == 0:
			s.stack = s.stack[:len(s.stack)-1]
		case words[0].first && words[0].Text == "import":
			s.expand(s.take())
		default:
			return words[0], true
		}
	}
	return word{}, false
}

// take removes and returns the next word.
func (s *source) take() word {
	top := s.top()
	w := top.words[0]
	top.words = top.words[1:]
	return w
}

// line takes the rest of the line, up to a closing brace.
func (s *source) line() (rest []word) {
	for top := s.top(); len(top.words) > 0; {
		if w := top.words[0]; w.first || w.Text == "}" {
			break
		}
		rest = append(rest, s.take())
	}
	return rest
}

func (s *source) fail(at Token, format string, args ...any) {
	s.errs = append(s.errs, at.Errorf("", format, args...))
}

// expand replaces an import by the words of the snippet or files that it names.
func (s *source) expand(at word) {
	by, rest := s.top(), s.line()
	if len(rest) != 1 {
		s.fail(at.Token, "import: want one snippet, file or pattern")
		return
	}

	if s.imports++; s.imports > maxImports || len(s.stack) > maxDepth {
		if s.imports <= maxImports+1 {
			s.fail(at.Token, "import: more than %d imports, or more than %d inside each other", maxImports, maxDepth)
		}
		s.imports = maxImports + 1
		return
	}

	t := expanded(rest[0].Token)
	name := t.Text
	if words, ok := s.snippets[name]; ok {
		s.push(at.Token, name, by, words)
		return
	}

	if strings.TrimSpace(name) == "" {
		s.errs = append(s.errs, t.Errorf("", "import: the name is empty"))
		return
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(at.File), name)
	}
	s.expandFiles(at.Token, name, rest[0].Text, by)
}

// expandFiles is expand for a pattern, which is pattern as its import names it.
func (s *source) expandFiles(at Token, pattern, named string, by *imported) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		s.fail(at, "import: %s: %w", pattern, err)
		return
	}
	if len(files) == 0 && !strings.ContainsAny(pattern, "*?[") {
		s.fail(at, "import: no snippet or file %s", named)
	}
	s.patterns[pattern] = files

	for _, file := range slices.Backward(files) { // the last one pushed is read first
		text, err := s.file(file)
		switch {
		case err != nil:
			s.fail(at, "import: %w", err)
		case manyWords(text):
			s.fail(at, "import: %s has "+tooManyWords, file, maxWords)
		default:
			s.lines[file] = bytes.Split(text, []byte("\n"))
			s.push(at, file, by, lex(file, text, true))
		}
	}
}

// file reads a file once, however often it is imported.
func (s *source) file(name string) ([]byte, error) {
	if text := s.read[name]; text != nil {
		return text, nil
	}

	text, err := Text(name)
	if err != nil {
		s.read[name] = nil
		return nil, err
	}
	s.read[name] = append([]byte{}, text...) // an empty file is not nil
	return s.read[name], nil
}

// push makes words the next ones to read. at is the position of the import that names
// them, and by is the file or snippet that contains it.
func (s *source) push(at Token, name string, by *imported, words []word) {
	for i := by; i != nil; i = i.by {
		if i.name == name {
			s.fail(at, "import cycle: %s", cycle(name, by))
			return
		}
	}

	if s.words+len(words) > maxWords {
		s.fail(at, "import: "+tooManyWords, maxWords)
		s.imports = maxImports + 1 // expand none of the following ones
		return
	}

	s.words += len(words)
	if len(words) > 0 {
		words = slices.Clone(words)
		words[0].first = true
		s.stack = append(s.stack, &imported{words, name, by})
	}
}

// cycle returns "a imports b imports a" for an import of a in b.
func cycle(name string, by *imported) string {
	text := name
	for i := by; i != nil; i = i.by {
		text = i.name + " imports " + text
		if i.name == name {
			break
		}
	}
	return text
}

// expanded replaces {$NAME} and {%NAME%} in a word by the values of the
// environment variables. A variable that is not set is empty. Values are not
// expanded again.
func expanded(t Token) Token {
	var out strings.Builder
	s := t.Text
	for {
		i := strings.IndexByte(s, '{')
		if i < 0 || i+1 == len(s) {
			t.Text = out.String() + s
			return t
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

		name := s[i+2 : i+2+n]
		value, ok := os.LookupEnv(name)
		if !ok && t.Unset != "" {
			t.Unset += ", "
		}
		if !ok {
			t.Unset += name
		}

		out.WriteString(s[:i] + value)
		s = s[i+2+n+len(end):]
	}
}

// indent returns the indentation of a line of a file, and whether text, which is
// on the line, is the first of it.
func (s *source) indent(at Token) (width int, first bool) {
	lines := s.lines[at.File]
	if at.Line > len(lines) {
		return 0, false
	}
	line := lines[at.Line-1]
	trimmed := bytes.TrimLeft(line, " \t")
	return len(line) - len(trimmed), bytes.HasPrefix(trimmed, []byte(at.Text))
}

// closes records that brace closes the { after opened. If brace is indented less
// than the line of the {, a } is missing before it.
func (s *source) closes(opened, brace Token) {
	if s.open != nil || opened.File != brace.File {
		return
	}
	want, _ := s.indent(opened)
	if got, first := s.indent(brace); first && got < want {
		s.open = &opened
	}
}

// unclosed reports that the { after opened is never closed, or its cause: a quote or
// an inner { that is never closed.
func (s *source) unclosed(opened Token) {
	for _, file := range slices.Sorted(maps.Keys(s.lines)) {
		if _, line := sourceLines(bytes.Join(s.lines[file], []byte("\n"))); line > 0 {
			s.fail(Token{File: file, Line: line}, "the quote is never closed")
			return
		}
	}

	if s.open != nil {
		opened = *s.open
	}
	text := "the { is never closed"
	if opened.Shown() {
		text = fmt.Sprintf("%s: its { is never closed", opened.Text)
	}
	s.fail(opened, "%s", text)
}
