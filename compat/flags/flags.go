// Package flags helps commands that replace earlier programs to accept the flags
// of those programs: flags with one dash, klog's logging flags, flags that have no
// effect or are refused, range checks, and a writer of the Corefile for them. Package
// cmd and the packages of compat call it.
package flags

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// A Port is a flag value: a port number.
type Port uint16

// Set implements pflag.Value.
func (p *Port) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return errors.New("want a port of 0..65535")
	}
	*p = Port(n)
	return nil
}

func (p *Port) String() string { return strconv.Itoa(int(*p)) }

// Type implements pflag.Value.
func (p *Port) Type() string { return "port" }

// CheckRange returns an error that begins with the flag's name if value is outside
// low..high.
func CheckRange[T cmp.Ordered](flag string, value, low, high T) error {
	if value < low || value > high {
		return fmt.Errorf("%s: want %v..%v, got %v", flag, low, high, value)
	}
	return nil
}

// Errors are the mistakes in the flags of a command.
type Errors []error

// If adds an error if a flag is bad.
func (e *Errors) If(bad bool, format string, args ...any) {
	if bad {
		*e = append(*e, fmt.Errorf(format, args...))
	}
}

// Add adds errors; nil is none.
func (e *Errors) Add(errs ...error) { *e = append(*e, errs...) }

// Join returns all errors as one, or nil.
func (e Errors) Join() error { return errors.Join(e...) }

// Refuse adds a hidden flag that an earlier program had. CheckRefused reports it with
// the reason if it is set.
func Refuse(f *pflag.FlagSet, name, reason string) {
	f.Var(&refused{reason: reason}, name, "refused: "+reason)
	_ = f.MarkHidden(name)
}

// RefuseSwitch is Refuse for a boolean flag, which may be set to false.
func RefuseSwitch(f *pflag.FlagSet, name, reason string) {
	Refuse(f, name, reason)
	f.Lookup(name).NoOptDefVal = "true"
}

// CheckRefused returns an error for each refused flag that is set.
func CheckRefused(f *pflag.FlagSet) error {
	var errs []error
	f.Visit(func(flag *pflag.Flag) {
		if r, ok := flag.Value.(*refused); ok && r.text != "false" {
			errs = append(errs, fmt.Errorf("-%s: %s", flag.Name, r.reason))
		}
	})
	return errors.Join(errs...)
}

// refused is the value of a refused flag.
type refused struct{ reason, text string }

// Set implements pflag.Value.
func (r *refused) Set(text string) error {
	r.text = text
	return nil
}

func (r *refused) String() string { return r.text }

// Type implements pflag.Value.
func (r *refused) Type() string { return "string" }

// LongForm returns args with two dashes before each flag that is in one of the
// sets and has one dash, such as -conf, and with - for _ in its name if the set
// has it so. It leaves the words behind "--" alone.
func LongForm(args []string, sets ...*pflag.FlagSet) []string {
	known := func(name string) bool {
		return slices.ContainsFunc(sets, func(set *pflag.FlagSet) bool { return set.Lookup(name) != nil })
	}

	var out []string
	for i, arg := range args {
		if arg == "--" {
			return append(out, args[i:]...)
		}
		text, value, assigned := strings.Cut(arg, "=")
		name := strings.TrimPrefix(strings.TrimPrefix(text, "-"), "-")
		if dashed := strings.ReplaceAll(name, "_", "-"); !known(name) && known(dashed) {
			name = dashed
		}

		if len(name) > 1 && len(text) > len(name) && known(name) {
			arg = "--" + name
			if assigned {
				arg += "=" + value
			}
		}
		out = append(out, arg)
	}
	return out
}
