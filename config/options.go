package config

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// Once returns an error for every use of a directive but the first, for
// directives that a server block may contain once.
func Once(uses []corefile.Directive) error {
	var errs []error
	for _, d := range uses[min(1, len(uses)):] {
		errs = append(errs, d.Errorf("already given at %s:%d, and can be given once in a server block",
			uses[0].File, uses[0].Line))
	}
	return errors.Join(errs...)
}

// NoArguments is the check of directives that take neither arguments nor options and may be
// given once in a server block.
func NoArguments(uses []corefile.Directive) error {
	return errors.Join(Once(uses), uses[0].Arity(0, 0), uses[0].Options())
}

// OneArgument parses a directive without options that has at most one argument and may be
// given once in a server block. set parses the argument.
func OneArgument(uses []corefile.Directive, least int, set func(corefile.Directive) error) error {
	err := uses[0].Arity(least, 1)
	if err == nil {
		err = set(uses[0])
	}
	return errors.Join(Once(uses), err, uses[0].Options())
}

// LowerOptions returns d with the names of its options in lower case, for directives whose
// options CoreDNS accepts in any case.
func LowerOptions(d corefile.Directive) corefile.Directive {
	d.Body = slices.Clone(d.Body)
	for i := range d.Body {
		d.Body[i].Text = strings.ToLower(d.Body[i].Text)
	}
	return d
}

// InSeconds returns d with the unit s added to its last argument if that is a plain number,
// for durations that CoreDNS accepts without a unit.
func InSeconds(d corefile.Directive) corefile.Directive {
	i := len(d.Args) - 1
	if _, err := strconv.ParseUint(d.Args[i].Text, 10, 32); err == nil {
		d.Args = slices.Clone(d.Args)
		d.Args[i].Text += "s"
	}
	return d
}

// A Fallthrough is the value of the option "fallthrough [ZONES...]": if it is on,
// queries for names that do not exist go to the next handler. If there are zones,
// only queries for names within them do.
type Fallthrough struct {
	On    bool
	Zones []wire.Name // empty for every zone
}

// Option returns the option for a directive's list of options.
func (f *Fallthrough) Option() corefile.Option {
	return corefile.Option{Usage: "fallthrough [ZONES...]", Set: f.Parse}
}

// Parse parses the option.
func (f *Fallthrough) Parse(o corefile.Directive) (err error) {
	f.On = true
	f.Zones, err = ParseZones(o.Path, o.Args)
	return err
}

// Through reports whether queries for a name fall through. The name is in wire
// form and lower case.
func (f *Fallthrough) Through(name []byte) bool {
	if !f.On || len(f.Zones) == 0 {
		return f.On
	}
	return slices.ContainsFunc(f.Zones, func(zone wire.Name) bool { return wire.Within(name, zone) })
}
