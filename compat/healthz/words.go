package healthz

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A simple is a simple command of the shell's grammar: a program with arguments.
type simple struct {
	words          []string
	stdout, stderr bool // keep this output; false if redirected to /dev/null
}

var errEmpty = errors.New("want a command, got none")

// redirection matches the supported redirections: to /dev/null and to each other.
var redirection = regexp.MustCompile(`^([12]?)>(>?[ \t]*/dev/null|&1|&2)(?:[ \t]|$)`)

// anyRedirection matches the start of every redirection.
var anyRedirection = regexp.MustCompile(`^[0-9]*[<>]`)

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// shellWords are the reserved words and built-in commands that only a shell can run:
// POSIX.1-2024, Shell Command Language, 2.4 and 2.15, and built-ins that no program
// of the same name replaces.
var shellWords = strings.Fields(`if then else elif fi do done case esac while until for { } !
	break : . continue eval exec exit export readonly return set shift times trap unset
	cd command type ulimit umask wait read jobs fg bg alias unalias getopts hash`)

// parse parses text as a shell does. The error names the first part that needs a
// shell.
func parse(text string) (simple, error) {
	s := simple{stdout: true, stderr: true}
	text = strings.TrimLeft(text, " \t\n")
	if end := strings.TrimRight(text, " \t\n"); !strings.HasSuffix(end, `\`) {
		text = end
	}
	for {
		text = strings.TrimLeft(text, " \t")
		if rest, ok := strings.CutPrefix(text, "\\\n"); ok { // a continued line, between words
			text = rest
			continue
		}
		if strings.Trim(text, " \t\n") == "" {
			break
		}
		if found := redirection.FindStringSubmatch(text); found != nil {
			s.redirect(found[1], found[2])
			text = text[len(found[0]):]
			continue
		}
		if found := anyRedirection.FindString(text); found != "" {
			return s, fmt.Errorf("redirection %s is not supported: use >/dev/null, 2>/dev/null or 2>&1", found)
		}

		word, rest, err := nextWord(text)
		if err != nil {
			return s, err
		}
		if plain := text[:len(text)-len(rest)]; len(s.words) == 0 {
			if found := assignment.FindString(plain); found != "" {
				return s, fmt.Errorf("assignment %s is not supported", found)
			}
			if slices.Contains(shellWords, plain) {
				return s, fmt.Errorf("the shell command %s is not supported", plain)
			}
		}

		s.words = append(s.words, word)
		text = rest
	}
	if len(s.words) == 0 || s.words[0] == "" {
		return s, errEmpty
	}
	return s, nil
}

// redirect applies FROM>TO. The order of redirections matters: 2>&1 copies the
// current state of standard output.
func (s *simple) redirect(from, to string) {
	keep := false
	switch to {
	case "&1":
		keep = s.stdout
	case "&2":
		keep = s.stderr
	}
	if from == "2" {
		s.stderr = keep
	} else {
		s.stdout = keep
	}
}

// special names the meaning of characters outside quotes.
var special = map[byte]string{
	'|': "a pipe or list (|)", '&': "a list or background (&)", ';': "a list (;)", '\n': "a second line",
	'(': "a group (()", ')': "a group ())", '$': "an expansion ($)", '`': "a substitution (`)",
	'*': "a pattern (*)", '?': "a pattern (?)", '[': "a pattern ([)",
}

// nextWord returns the first word of text without its quotes, and the rest.
func nextWord(text string) (word, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case ' ', '\t', '<', '>':
			return b.String(), text[i:], nil

		case '\'':
			inside, _, ended := strings.Cut(text[i+1:], "'")
			if !ended {
				return "", "", errors.New("unclosed quote '")
			}
			b.WriteString(inside)
			i += len(inside) + 1

		case '"':
			n, err := quoted(&b, text[i+1:])
			if err != nil {
				return "", "", err
			}
			i += n

		case '\\':
			if i++; i == len(text) {
				return "", "", errors.New("nothing follows the last \\")
			}
			if text[i] != '\n' { // a continued line
				b.WriteByte(text[i])
			}

		default:
			name, ok := special[c]
			switch {
			case i == 0 && c == '#':
				name, ok = "a comment (#)", true
			case i == 0 && c == '~':
				name, ok = "a home directory (~)", true
			}
			if ok {
				return "", "", fmt.Errorf("%s is not supported", name)
			}
			b.WriteByte(c)
		}
	}
	return b.String(), "", nil
}

// quoted appends text up to the closing " to b and returns the length consumed,
// including the ".
func quoted(b *strings.Builder, text string) (int, error) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1, nil
		case c == '$' || c == '`':
			return 0, fmt.Errorf("%s is not supported", special[c])
		case c == '\\' && i+1 < len(text) && text[i+1] == '\n':
			i++
		case c == '\\' && i+1 < len(text) && strings.IndexByte("$`\"\\", text[i+1]) >= 0:
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return 0, errors.New("unclosed quote \"")
}
