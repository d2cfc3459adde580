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
	// Usage is the syntax, "tls CERT KEY [CA]": the option's name, and its
	// arguments. Arguments in brackets may be omitted, and the one with "..." may be
	// repeated.
	Usage   string
	Block   bool   // the option may have braces of its own
	Once    bool   // a second use is an error
	Removed string // why the option no longer exists: "removed in CoreDNS 1.7"
	// Default is the value without the option, as the arguments that have the same effect.
	// Set gets them first. "" leaves the value to the directive.
	Default string
	Set     func(o Directive) error
}

// Name returns the first word of the usage.
func (o Option) Name() string {
	name, _, _ := strings.Cut(o.Usage, " ")
	return name
}

// arity returns the least and largest number of arguments. most < 0 is any number.
func (o Option) arity() (least, most int) {
	depth, repeated := 0, false
	for _, word := range strings.Fields(o.Usage)[1:] {
		most++
		if strings.HasPrefix(word, "[") {
			depth++
		}
		if depth == 0 {
			least++
		}
		repeated = repeated || strings.Contains(word, "...")
		word = strings.TrimSuffix(word, "...")
		depth = max(0, depth-len(word)+len(strings.TrimRight(word, "]")))
	}
	if repeated {
		most = -1
	}
	return least, most
}

// Options parses the lines between d's braces and calls Set of each line's option, after
// Set of each option with a default. It returns every error: errors of Set, unknown options
// and wrong numbers of arguments.
func (d Directive) Options(opts ...Option) error {
	var errs []error
	for _, opt := range opts {
		if opt.Default != "" {
			errs = append(errs, opt.Set(d.byDefault(opt)))
		}
	}

	seen := map[string]int{}
	for _, o := range d.Body {
		i := slices.IndexFunc(opts, func(opt Option) bool { return opt.Name() == o.Text })
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
			err := o.Arity(opt.arity())
			if err == nil {
				err = opt.Set(o)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// byDefault returns an option of d with its default as arguments.
func (d Directive) byDefault(opt Option) Directive {
	o := Directive{Token: Token{Text: opt.Name(), File: d.File, Line: d.Line}, Path: d.Path + ": " + opt.Name()}
	for _, word := range strings.Fields(opt.Default) {
		o.Args = append(o.Args, Token{Text: word, File: d.File, Line: d.Line})
	}
	return o
}

// An UnknownOption is the cause of the error of an option that a directive does not have. The
// test of the reference pages compares them with Known.
type UnknownOption struct {
	Known []Option // options of the directive
}

func (*UnknownOption) Error() string { return "unknown option" }

func (d Directive) unknown(o Directive, opts []Option) error {
	o.Path = d.Path
	cause := &UnknownOption{opts}
	if len(opts) == 0 && o.Shown() {
		return o.at(fmt.Sprintf("takes no options, got %q", o.Text), cause)
	}
	if len(opts) == 0 {
		return o.at("takes no options", cause)
	}
	var known []string
	for _, opt := range opts {
		if opt.Removed == "" {
			known = append(known, opt.Name())
		}
	}
	return o.at(fmt.Sprintf("unknown %s%s", o.Describe("option"), DidYouMean(o.Text, known)), cause)
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

// The functions below return a Set that stores the last argument. Without an
// argument the value does not change.

// Int sets *n to a number from least to most.
func Int(n *int, least, most int) func(Directive) error {
	return set(n, func(got string) (int, error) {
		v, err := strconv.Atoi(got)
		if err != nil || v < least || v > most {
			return 0, fmt.Errorf("want %d..%d, got %q", least, most, got)
		}
		return v, nil
	})
}

// Float sets *f to a number from least to most.
func Float(f *float64, least, most float64) func(Directive) error {
	return set(f, func(got string) (float64, error) {
		v, err := strconv.ParseFloat(got, 64)
		if err != nil || !(v >= least && v <= most) { // also false for NaN
			return 0, fmt.Errorf("want %g..%g, got %q", least, most, got)
		}
		return v, nil
	})
}

// Duration sets *t to a duration in Go's syntax: 5s, 1h30m.
func Duration(t *time.Duration, least, most time.Duration) func(Directive) error {
	return set(t, func(got string) (time.Duration, error) {
		v, err := time.ParseDuration(got)
		if err != nil || v < least || v > most {
			return 0, fmt.Errorf("want a duration of %s..%s, got %q", short(least), short(most), got)
		}
		return v, nil
	})
}

// Size sets *n to a number of bytes, which may have a unit: KB, MB or GB, of 1,024 bytes, of
// 1,024 KB and of 1,024 MB. The units of Kubernetes, Ki, Mi and Gi, are the same.
func Size(n *int64, least, most int64) func(Directive) error {
	return set(n, func(got string) (int64, error) {
		digits, unit := got, int64(1)
		if n := len(got) - 2; n >= 0 {
			if i := slices.Index([]string{"KB", "MB", "GB", "KI", "MI", "GI"}, strings.ToUpper(got[n:])); i >= 0 {
				digits, unit = got[:n], 1<<(10*(i%3+1))
			}
		}

		v, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || v < (least+unit-1)/unit || v > most/unit {
			return 0, fmt.Errorf("want a size of %s..%s, such as 64MB, got %q", size(least), size(most), got)
		}
		return v * unit, nil
	})
}

// size formats a number of bytes with the largest unit that divides it.
func size(n int64) string {
	for i, unit := range [...]string{"GB", "MB", "KB"} {
		if shift := 30 - 10*i; n>>shift<<shift == n {
			return strconv.FormatInt(n>>shift, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10)
}

// String sets *s to a text, which must not be empty.
func String(s *string) func(Directive) error {
	return set(s, func(got string) (string, error) {
		if got == "" {
			return "", errors.New(`want a value, got ""`)
		}
		return got, nil
	})
}

// OneOf sets *s to one of words.
func OneOf(s *string, words ...string) func(Directive) error {
	return set(s, func(got string) (string, error) {
		if !slices.Contains(words, got) {
			return "", fmt.Errorf("want %s, got %q%s", strings.Join(words, " or "), got, DidYouMean(got, words))
		}
		return got, nil
	})
}

// Flag sets *b to true. The option has no argument.
func Flag(b *bool) func(Directive) error {
	return func(Directive) error { *b = true; return nil }
}

// Append appends the results of parse, which reads one argument, to *to.
func Append[T any](to *[]T, parse func(string) (T, error)) func(Directive) error {
	return func(d Directive) error {
		var errs []error
		for _, a := range d.Args {
			v, err := parse(a.Text)
			if err != nil {
				errs = append(errs, a.Errorf(d.Path, "%w", err))
				continue
			}
			*to = append(*to, v)
		}
		return errors.Join(errs...)
	}
}

// set returns a Set that stores the result of parse, unless parse returns an error.
func set[T any](v *T, parse func(string) (T, error)) func(Directive) error {
	return func(d Directive) error {
		if len(d.Args) == 0 {
			return nil
		}
		parsed, err := parse(d.Args[len(d.Args)-1].Text)
		if err != nil {
			return d.Errorf("%w", err)
		}
		*v = parsed
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
