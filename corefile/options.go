package corefile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Option is a word allowed between a directive's braces. It may be repeated;
// the last use wins, as in CoreDNS, unless Set collects the values.
type Option struct {
	Name     string
	Usage    string // the syntax, for errors: "tls CERT KEY [CA]"; may be left out
	Min, Max int    // number of arguments; Max < 0 is any number
	Block    bool   // the option may have braces of its own
	Once     bool   // a second use is an error
	Removed  string // why the option no longer exists: "removed in CoreDNS 1.7"
	Set      func(o Directive) error
}

// Options parses the lines between d's braces and calls Set of each line's
// option. It returns every error: those of Set, unknown options and wrong numbers
// of arguments.
func (d Directive) Options(opts ...Option) error {
	var errs []error
	seen := map[string]int{}
	for _, o := range d.Body {
		i := slices.IndexFunc(opts, func(opt Option) bool { return opt.Name == o.Text })
		if i < 0 {
			errs = append(errs, d.unknown(o, opts))
			continue
		}
		line, again := seen[o.Text]
		seen[o.Text] = o.Line
		switch opt := opts[i]; {
		case again && opt.Once:
			errs = append(errs, o.Errorf("already given on line %d", line))
		case o.Block && !opt.Block:
			errs = append(errs, o.Errorf("takes no braces"))
		case opt.Removed != "":
			errs = append(errs, o.Errorf("%s: delete this line", opt.Removed))
		default:
			o.Usage = opt.Usage
			err := o.Arity(opt.Min, opt.Max)
			if err == nil {
				err = opt.Set(o)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (d Directive) unknown(o Directive, opts []Option) error {
	o.Path = d.Path
	if len(opts) == 0 && o.Shown() {
		return o.Errorf("takes no options, got %q", o.Text)
	}
	if len(opts) == 0 {
		return o.Errorf("takes no options")
	}
	var known []string
	for _, opt := range opts {
		if opt.Removed == "" {
			known = append(known, opt.Name)
		}
	}
	return o.Errorf("unknown %s%s", o.Describe("option"), DidYouMean(o.Text, known))
}

// Arity returns an error unless d has from least to most arguments; most < 0 is any
// number.
func (d Directive) Arity(least, most int) error {
	got := len(d.Args)
	if got >= least && (got <= most || most < 0) {
		return nil
	}
	want := ""
	switch {
	case most == 0:
		want = "no argument"
	case d.Usage != "":
		return d.Errorf("got %s, usage: %s", arguments(got), d.Usage)
	case most < 0:
		want = fmt.Sprintf("at least %s", arguments(least))
	case least == most:
		want = arguments(least)
	case least == 0:
		want = "at most " + arguments(most)
	default:
		want = fmt.Sprintf("%d to %s", least, arguments(most))
	}
	return d.Errorf("want %s, got %d", want, got)
}

func arguments(n int) string {
	if n == 0 {
		return "no arguments"
	}
	if n == 1 {
		return "1 argument"
	}
	return strconv.Itoa(n) + " arguments"
}

// Words returns the arguments as strings.
func (d Directive) Words() []string {
	var words []string
	for _, a := range d.Args {
		words = append(words, a.Text)
	}
	return words
}

// Int sets *n to the last argument, a number from least to most.
func Int(n *int, least, most int) func(Directive) error {
	return func(d Directive) error {
		got := d.last()
		v, err := strconv.Atoi(got)
		if err != nil || v < least || v > most {
			return d.Errorf("want %d..%d, got %q", least, most, got)
		}
		*n = v
		return nil
	}
}

// Float sets *f to the last argument, a number from least to most.
func Float(f *float64, least, most float64) func(Directive) error {
	return func(d Directive) error {
		got := d.last()
		v, err := strconv.ParseFloat(got, 64)
		if err != nil || !(v >= least && v <= most) { // also false for NaN
			return d.Errorf("want %g..%g, got %q", least, most, got)
		}
		*f = v
		return nil
	}
}

// Duration sets *t to the last argument, in Go's syntax: 5s, 1h30m.
func Duration(t *time.Duration, least, most time.Duration) func(Directive) error {
	return func(d Directive) error {
		got := d.last()
		v, err := time.ParseDuration(got)
		if err != nil || v < least || v > most {
			return d.Errorf("want a duration of %s..%s, got %q", short(least), short(most), got)
		}
		*t = v
		return nil
	}
}

// short formats a duration without trailing zero units: 1h, not 1h0m0s.
func short(t time.Duration) string {
	s := t.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// Flag sets *b to true. The option has no argument.
func Flag(b *bool) func(Directive) error {
	return func(Directive) error { *b = true; return nil }
}

// String sets *s to the last argument, which must not be empty.
func String(s *string) func(Directive) error {
	return func(d Directive) error {
		if d.last() == "" {
			return d.Errorf(`want a value, got ""`)
		}
		*s = d.last()
		return nil
	}
}

// OneOf sets *s to the last argument, one of words.
func OneOf(s *string, words ...string) func(Directive) error {
	return func(d Directive) error {
		got := d.last()
		if !slices.Contains(words, got) {
			return d.Errorf("want %s, got %q%s", strings.Join(words, " or "), got, DidYouMean(got, words))
		}
		*s = got
		return nil
	}
}

func (d Directive) last() string {
	if len(d.Args) == 0 {
		return ""
	}
	return d.Args[len(d.Args)-1].Text
}
