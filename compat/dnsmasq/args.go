package dnsmasq

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/corefile"
)

// A setting is an option as the user wrote it.
type setting struct {
	option   string // --server, -S, or, in a file, server
	value    string // in files, quoted separators are escaped: see escape
	hasValue bool
	file     string // "" for the command line
	line     int
}

// String returns the prefix of errors.
func (s setting) String() string {
	if s.file == "" {
		return s.option + ": "
	}
	return fmt.Sprintf("%s:%d: %s: ", s.file, s.line, s.option)
}

// prefix returns the prefix, without the option's name, of errors that are found
// after all options have been read.
func (s setting) prefix() string {
	if s.file == "" {
		return "--"
	}
	return fmt.Sprintf("%s:%d: ", s.file, s.line)
}

func (r *reader) fail(s setting, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s"+format, append([]any{s}, args...)...))
}

// commandLine reads arguments as GNU's getopt_long does. It refuses abbreviations,
// whose meaning changes from one version to the next.
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
		r.errs = append(r.errs, fmt.Errorf("%q is not an option: write --OPTION=VALUE", word))
	}
}

// long reads an option without its dashes, and returns the arguments after it.
func (r *reader) long(text string, args []string) []string {
	name, value, hasValue := strings.Cut(text, "=")
	s := setting{option: "--" + name, value: value, hasValue: hasValue}
	o, ok := r.find(name)
	if !ok {
		r.fail(s, "unknown option%s", corefile.DidYouMean(name, r.names()))
		return args
	}
	if o.arg == required && !hasValue && len(args) > 0 {
		s.value, s.hasValue, args = args[0], true, args[1:]
	}
	r.set(o, s)
	return args
}

// short reads option letters and returns the arguments after them. The last letter
// may have a value.
func (r *reader) short(letters string, args []string) []string {
	for letters != "" {
		letter := letters[:1]
		letters = letters[1:]
		s := setting{option: "-" + letter}
		i := slices.IndexFunc(r.table, func(o option) bool { return o.short == letter })
		if i < 0 {
			r.fail(s, "unknown option")
			return args // the rest may be its value
		}

		o := r.table[i]
		if o.arg == optional && !strings.Contains(bare, letter) {
			o.arg = required // only the long form may lack the value
		}
		if o.arg == required {
			switch {
			case letters != "":
				s.value, s.hasValue, letters = letters, true, ""
			case len(args) > 0:
				s.value, s.hasValue, args = args[0], true, args[1:]
			}
		}
		r.set(o, s)
	}
	return args
}

// bare has the letters that have no value although their long forms may have one.
const bare = "q13"

func (r *reader) find(name string) (option, bool) {
	if i := slices.IndexFunc(r.table, func(o option) bool { return o.name == name }); i >= 0 {
		return r.table[i], true
	}
	return option{}, false
}

func (r *reader) names() (all []string) {
	for _, o := range r.table {
		if o.refusal == "" {
			all = append(all, o.name)
		}
	}
	return all
}

// set applies an option.
func (r *reader) set(o option, s setting) {
	switch {
	case o.refusal != "":
		r.fail(s, "not served: %s", o.refusal)
		return
	case o.arg == required && !s.hasValue:
		r.fail(s, "want a value")
		return
	case o.arg == none && s.hasValue:
		r.fail(s, "want no value, got %q", unescape(s.value))
		return
	case strings.ContainsFunc(s.value, invalid) || s.file == "" && strings.ContainsAny(s.value, escapes):
		r.fail(s, "want text without control characters, got %q", s.value)
		return
	}

	if o.once {
		inFile, given := r.given[o.name]
		if given && inFile == (s.file != "") {
			r.fail(s, "given twice")
			return
		}
		r.given[o.name] = s.file != "" // a file overrides the command line
	}

	if o.set != nil {
		if err := o.set(s); err != nil {
			r.fail(s, "%w", err)
			return
		}
	}
	if o.note != "" {
		r.Notes = append(r.Notes, "--"+o.name+": "+o.note)
	}
}

// invalid reports whether no value may contain c.
func invalid(c rune) bool {
	return c < ' ' && !strings.ContainsRune(escapes, c) || c == 0x7f || c == '\uFFFD'
}

// In quotes in a file, separators have no meaning. Control characters replace them
// until the value has been split at the other separators.
const (
	separators = ",:.#\"\\/"
	escapes    = "\x01\x02\x03\x04\x05\x06\x07"
)

func escape(c byte) byte {
	if i := strings.IndexByte(separators, c); i >= 0 {
		return escapes[i]
	}
	return c
}

// unescape restores the separators.
func unescape(s string) string {
	return strings.Map(func(c rune) rune {
		if i := strings.IndexRune(escapes, c); i >= 0 {
			return rune(separators[i])
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
		raw := strings.ContainsAny(line, escapes)

		line, err := unquote(line)
		name, value, hasValue := strings.Cut(line, "=")
		s.option, s.value, s.hasValue = strings.TrimSpace(name), strings.TrimSpace(value), hasValue
		if err != nil {
			s.option = "quotes"
			r.fail(s, "%w", err)
			continue
		}

		if s.option == "" && !hasValue {
			continue
		}
		o, ok := r.find(s.option)
		if !ok {
			s.option = unescape(s.option)
			r.fail(s, "unknown option%s", corefile.DidYouMean(s.option, r.names()))
			continue
		}
		if raw {
			r.fail(s, "want text without control characters, got %q", unescape(s.value))
			continue
		}
		r.set(o, s)
	}
}

// unquote removes quotes and comments from a line.
func unquote(line string) (string, error) {
	var out []byte
	blank := true // the last character is a space, or there is none
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			end := false
			for i++; i < len(line) && !end; i++ {
				switch {
				case line[i] == '"':
					end = true
					i-- // the outer loop skips it
				case line[i] == '\\' && i+1 < len(line) && strings.IndexByte(`"tnebr\`, line[i+1]) >= 0:
					i++
					if line[i] != '"' && line[i] != '\\' {
						return "", fmt.Errorf(`want no control characters, got \%c`, line[i])
					}
					out = append(out, escape(line[i]))
				default:
					out = append(out, escape(line[i]))
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
