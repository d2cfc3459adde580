package corefile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// byteOrderMark is not part of the first word if a file begins with it.
const byteOrderMark = "\uFEFF"

// Layout returns the text of a Corefile in the usual layout: four spaces for each
// brace around a line, one space between words, no blank line at the start or end of a
// block, and one at most elsewhere. Comments, quotes, imports and the words themselves stay
// as they are. It returns an error if braces or a quote are not closed.
func Layout(file string, text []byte) ([]byte, error) {
	if manyWords(text) {
		return nil, (&Token{File: file, Line: 1}).Errorf("", tooManyWords, maxWords)
	}
	lines, line := sourceLines(text)
	if line > 0 {
		return nil, (&Token{File: file, Line: line}).Errorf("", "the quote is not closed")
	}

	var out strings.Builder
	var open []int // lines of the braces around
	blank := false // a blank line before the next one
	start := true  // of the file or of a block
	for _, l := range lines {
		if len(l.words) == 0 && l.comment == "" {
			blank = true
			continue
		}

		closes := len(l.words) > 0 && l.words[0] == "}"
		if blank && !start && !closes {
			out.WriteByte('\n')
		}
		blank = false
		start = len(l.words) > 0 && l.words[len(l.words)-1] == "{"

		depth, ok := l.braces(&open)
		if !ok {
			return nil, (&Token{File: file, Line: l.number}).Errorf("", "} without {")
		}
		l.write(&out, depth)
	}
	if len(open) > 0 {
		return nil, (&Token{File: file, Line: open[len(open)-1]}).Errorf("", "the { is not closed")
	}

	laid := []byte(out.String())
	if strings.HasPrefix(out.String(), byteOrderMark) {
		laid = append([]byte(byteOrderMark), laid...) // it begins a word, and would be removed
	}
	equal := func(a, b word) bool { return a.Text == b.Text && a.first == b.first }
	if !slices.EqualFunc(lex(file, text, false), lex(file, laid, false), equal) {
		return nil, fmt.Errorf("%s: the layout would change the words; this is a defect of Seamark", file)
	}
	return laid, nil
}

// A sourceLine is a line of a Corefile, or several if a word in quotes spans them.
type sourceLine struct {
	words   []string // with their quotes
	comment string   // with its #
	number  int
}

// braces adds the line to open for each brace that it opens, and removes the last one for each
// that it closes. depth is the number of braces around the line. It returns false if none is
// left to close.
func (l *sourceLine) braces(open *[]int) (depth int, ok bool) {
	depth = len(*open)
	for i, w := range l.words {
		visible, _, _ := strings.Cut(w, "#")
		switch strings.Trim(visible, `"`) {
		case "{":
			*open = append(*open, l.number)
		case "}":
			if len(*open) == 0 {
				return 0, false
			}
			*open = (*open)[:len(*open)-1]
			if i == 0 {
				depth = len(*open)
			}
		}
	}
	return depth, true
}

// write writes the line in the usual layout.
func (l *sourceLine) write(out *strings.Builder, depth int) {
	out.WriteString(strings.Repeat("    ", depth))
	out.WriteString(strings.Join(l.words, " "))
	if len(l.words) > 0 && l.comment != "" {
		out.WriteByte(' ')
	}
	out.WriteString(l.comment)
	out.WriteByte('\n')
}

// sourceLines divides a text as the lexer does. open is the line of a quote that is never
// closed, 0 if there is none. If several words in quotes span lines, that is the first of
// them: the closing quote is missing there, and every later quote is read as its opposite.
func sourceLines(text []byte) (lines []sourceLine, open int) {
	l := sourceLine{number: 1}
	var word strings.Builder // or a comment
	var quoted, escaped, comment bool
	end := func() {
		switch {
		case comment:
			l.comment = strings.TrimRightFunc(word.String(), unicode.IsSpace)
		case word.Len() > 0:
			l.words = append(l.words, word.String())
		}
		word.Reset()
	}

	number, spanning := 1, 0 // the first line of which a word spans several
	for rest := strings.TrimPrefix(string(text), byteOrderMark); rest != ""; {
		c, size := utf8.DecodeRuneInString(rest)
		char := rest[:size] // a byte that is not UTF-8 stays as it is
		rest = rest[size:]
		if c == '\n' {
			number++
		}

		switch {
		case quoted:
			if c == '\n' && spanning == 0 {
				spanning = l.number
			}
			word.WriteString(char)
			if c == '"' && !escaped {
				quoted = false
				end()
			}
			escaped = c == '\\' && !escaped

		case c == '\n':
			end()
			lines = append(lines, l)
			l, comment = sourceLine{number: number}, false

		case comment:
			word.WriteString(char)
		case c == '#' && word.Len() == 0: // inside a word it hides the rest of that word
			comment = true
			word.WriteString(char)

		case c == '\r':
			if invalidEnd(word.String()) && invalidStart(rest) {
				word.WriteString(char) // without it the bytes around could become a character
			}
		case unicode.IsSpace(c):
			end()
		default:
			quoted = c == '"' && word.Len() == 0
			escaped = false
			word.WriteString(char)
		}
	}
	end()

	if quoted {
		open = cmp.Or(spanning, l.number)
	}
	return append(lines, l), open
}

// invalidEnd reports whether s ends with a byte that is not UTF-8.
func invalidEnd(s string) bool {
	r, size := utf8.DecodeLastRuneInString(s)
	return r == utf8.RuneError && size == 1
}

// invalidStart reports whether s begins with a byte that is not UTF-8.
func invalidStart(s string) bool {
	r, size := utf8.DecodeRuneInString(s)
	return r == utf8.RuneError && size == 1
}
