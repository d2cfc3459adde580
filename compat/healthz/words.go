package healthz

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A simple is a command that needs no shell: a program, its arguments, and whether
// what it writes is kept.
type simple struct {
	words     []string
	out, errs bool
}

var errEmpty = errors.New("want a command, got none")

// redirection is what is understood of them: to nowhere, and to each other.
var redirection = regexp.MustCompile(`^([12]?)>(>?[ \t]*/dev/null|&1|&2)(?:[ \t]|$)`)

// anyRedirection is how they all begin.
var anyRedirection = regexp.MustCompile(`^[0-9]*[<>]`)

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// ofShells are the first words of commands that no program does: POSIX.1-2024,
// Shell Command Language, 2.4 and 2.15, and the built-ins that a program of that
// name could not stand in for.
var ofShells = strings.Fields(`if then else elif fi do done case esac while until for { } !
	break : . continue eval exec exit export readonly return set shift times trap unset
	cd command type ulimit umask wait read jobs fg bg alias unalias getopts hash`)

// parse splits text as a shell would. The error says what only a shell understands.
func parse(text string) (simple, error) {
	s := simple{out: true, errs: true}
	text = strings.Trim(text, " \t\n")
	for {
		text = strings.TrimLeft(text, " \t")
		if text == "" {
			break
		}
		if found := redirection.FindStringSubmatch(text); found != nil {
			s.redirect(found[1], found[2])
			text = text[len(found[0]):]
			continue
		}
		if found := anyRedirection.FindString(text); found != "" {
			return s, fmt.Errorf("a redirection (%s) is understood as >/dev/null, 2>/dev/null and 2>&1 only", found)
		}
		word, rest, err := nextWord(text)
		if err != nil {
			return s, err
		}
		if plain := text[:len(text)-len(rest)]; len(s.words) == 0 {
			if found := assignment.FindString(plain); found != "" {
				return s, fmt.Errorf("an assignment (%s) is not understood", found)
			}
			if slices.Contains(ofShells, plain) {
				return s, fmt.Errorf("the shell's %s is not understood", plain)
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

// redirect does as FROM>TO says, in the order of the text: 2>&1 takes over what
// the standard output is by then.
func (s *simple) redirect(from, to string) {
	kept := false
	switch to {
	case "&1":
		kept = s.out
	case "&2":
		kept = s.errs
	}
	if from == "2" {
		s.errs = kept
	} else {
		s.out = kept
	}
}

// special is what a shell sees in characters that stand outside quotes.
var special = map[byte]string{
	'|': "a pipe or list (|)", '&': "a list or background (&)", ';': "a list (;)", '\n': "a second line",
	'(': "a group (()", ')': "a group ())", '$': "an expansion ($)", '`': "a substitution (`)",
	'*': "a pattern (*)", '?': "a pattern (?)", '[': "a pattern ([)",
}

// nextWord takes the quotes off the word that text begins with.
func nextWord(text string) (word, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case ' ', '\t', '<', '>':
			return b.String(), text[i:], nil
		case '\'':
			inside, _, ended := strings.Cut(text[i+1:], "'")
			if !ended {
				return "", "", errors.New("a quote (') does not end")
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
				return "", "", errors.New("there is nothing behind the last \\")
			}
			if text[i] != '\n' { // which is a line that goes on
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
				return "", "", fmt.Errorf("%s is not understood", name)
			}
			b.WriteByte(c)
		}
	}
	return b.String(), "", nil
}

// quoted takes text up to the closing " and gives its length, that included.
func quoted(b *strings.Builder, text string) (int, error) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1, nil
		case c == '$' || c == '`':
			return 0, fmt.Errorf("%s is not understood", special[c])
		case c == '\\' && i+1 < len(text) && text[i+1] == '\n':
			i++
		case c == '\\' && i+1 < len(text) && strings.IndexByte("$`\"\\", text[i+1]) >= 0:
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return 0, errors.New("a quote (\") does not end")
}
