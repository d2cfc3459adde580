package config

import (
	"errors"
	"slices"

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
