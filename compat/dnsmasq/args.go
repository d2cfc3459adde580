package dnsmasq

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/corefile"
)

// A setting is one option as it was given.
type setting struct {
	option string // as it is written: --server, -S, server
	value  string // in files , : . and # between quotes are hidden
	valued bool
	file   string // "" is the command line
	line   int
}

// String is what errors begin with.
func (s setting) String() string {
	if s.file == "" {
		return s.option + ": "
	}
	return fmt.Sprintf("%s:%d: %s: ", s.file, s.line, s.option)
}

// prefix is what stands in front of an option's name in errors that come later.
func (s setting) prefix() string {
	if s.file == "" {
		return "--"
	}
	return fmt.Sprintf("%s:%d: ", s.file, s.line)
}

func (r *reader) fail(s setting, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s"+format, append([]any{s}, args...)...))
}

// commandLine reads words as GNU's getopt_long does. Abbreviations are refused: what
// they stand for changes from one version to the next.
func (r *reader) commandLine(args []string) {
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		switch {
		case word == "--":
			for _, rest := range args {
				r.junk(rest)
			}
			return
		case strings.HasPrefix(word, "--"):
			args = r.long(word[2:], args)
		case strings.HasPrefix(word, "-") && word != "-":
			args = r.short(word[1:], args)
		default:
			r.junk(word)
		}
	}
}

func (r *reader) junk(word string) {
	if strings.TrimSpace(word) != "" {
		r.errs = append(r.errs, fmt.Errorf("%q is no option: write --OPTION=VALUE", word))
	}
}

// long reads an option without its dashes, and gives the words behind it.
func (r *reader) long(text string, args []string) []string {
	name, value, valued := strings.Cut(text, "=")
	s := setting{option: "--" + name, value: value, valued: valued}
	o, ok := r.find(name)
	if !ok {
		r.fail(s, "unknown option%s", corefile.DidYouMean(name, r.names()))
		return args
	}
	if o.arg == must && !valued && len(args) > 0 {
		s.value, s.valued, args = args[0], true, args[1:]
	}
	r.set(o, s)
	return args
}

// short reads letters, of which the last may have a value, and gives the words
// behind them.
func (r *reader) short(letters string, args []string) []string {
	for letters != "" {
		letter := letters[:1]
		letters = letters[1:]
		s := setting{option: "-" + letter}
		i := slices.IndexFunc(r.table, func(o option) bool { return o.short == letter })
		if i < 0 {
			r.fail(s, "unknown option")
			return args // what follows may be its value
		}
		o := r.table[i]
		if o.arg == may && !strings.Contains(bare, letter) {
			o.arg = must // only the long form can do without
		}
		if o.arg == must {
			switch {
			case letters != "":
				s.value, s.valued, letters = letters, true, ""
			case len(args) > 0:
				s.value, s.valued, args = args[0], true, args[1:]
			}
		}
		r.set(o, s)
	}
	return args
}

// bare are the letters without a value of options that may have one.
const bare = "q13"

func (r *reader) find(name string) (option, bool) {
	i := slices.IndexFunc(r.table, func(o option) bool { return o.name == name })
	if i < 0 {
		return option{}, false
	}
	return r.table[i], true
}

func (r *reader) names() (all []string) {
	for _, o := range r.table {
		if o.why == "" {
			all = append(all, o.name)
		}
	}
	return all
}

// set does what an option says.
func (r *reader) set(o option, s setting) {
	switch {
	case o.why != "":
		r.fail(s, "not served: %s", o.why)
		return
	case o.arg == must && !s.valued:
		r.fail(s, "want a value")
		return
	case o.arg == none && s.valued:
		r.fail(s, "want no value, got %q", show(s.value))
		return
	case strings.ContainsFunc(s.value, strange) || s.file == "" && strings.ContainsAny(s.value, hidden):
		r.fail(s, "want text without control characters, got %q", s.value)
		return
	}
	if o.once {
		inFile, twice := r.given[o.name]
		if twice && inFile == (s.file != "") {
			r.fail(s, "given twice")
			return
		}
		r.given[o.name] = s.file != "" // what stands in a file wins
	}
	if o.set != nil {
		if err := o.set(r, s); err != nil {
			r.fail(s, "%w", err)
			return
		}
	}
	if o.lost != "" {
		r.Notes = append(r.Notes, "--"+o.name+": "+o.lost)
	}
}

// strange says which characters no value has: controls but for those that hide.
func strange(c rune) bool {
	return c < ' ' && !strings.ContainsRune(hidden, c) || c == 0x7f || c == '\uFFFD'
}

// In quotes in a file these characters are nothing but themselves; until a value has
// been cut at the others, controls stand for them.
const (
	plain  = ",:.#\"\\/"
	hidden = "\x01\x02\x03\x04\x05\x06\x07"
)

func hide(c byte) byte {
	if i := strings.IndexByte(plain, c); i >= 0 {
		return hidden[i]
	}
	return c
}

// show gives the characters back.
func show(s string) string {
	return strings.Map(func(c rune) rune {
		if i := strings.IndexRune(hidden, c); i >= 0 {
			return rune(plain[i])
		}
		return c
	}, s)
}

// config reads a file: an option on each line, without its dashes.
func (r *reader) config(file string, text []byte) {
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		s := setting{file: file, line: n}
		line = strings.TrimRight(line, "\r\n")
		raw := strings.ContainsAny(line, hidden)
		line, err := unquote(line)
		name, value, valued := strings.Cut(line, "=")
		s.option, s.value, s.valued = strings.TrimSpace(name), strings.TrimSpace(value), valued
		if err != nil {
			s.option = "quotes"
			r.fail(s, "%w", err)
			continue
		}
		if s.option == "" && !valued {
			continue
		}
		o, ok := r.find(s.option)
		if !ok {
			s.option = show(s.option)
			r.fail(s, "unknown option%s", corefile.DidYouMean(s.option, r.names()))
			continue
		}
		if raw {
			r.fail(s, "want text without control characters, got %q", show(s.value))
			continue
		}
		r.set(o, s)
	}
}

// unquote takes quotes and comments out of a line.
func unquote(line string) (string, error) {
	var out []byte
	blank := true // in front of this there is nothing, or a space
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			end := false
			for i++; i < len(line) && !end; i++ {
				switch {
				case line[i] == '"':
					end = true
					i-- // the loop steps over it
				case line[i] == '\\' && i+1 < len(line) && strings.IndexByte(`"tnebr\`, line[i+1]) >= 0:
					i++
					if line[i] != '"' && line[i] != '\\' {
						return "", fmt.Errorf(`want no control characters, got \%c`, line[i])
					}
					out = append(out, hide(line[i]))
				default:
					out = append(out, hide(line[i]))
				}
			}
			if !end {
				return "", fmt.Errorf(`want a " at the end`)
			}
			blank = false
		case c == '#' && blank:
			return string(out), nil
		default:
			blank = c == ' ' || c == '\t'
			if blank {
				c = ' '
			}
			out = append(out, c)
		}
	}
	return string(out), nil
}
