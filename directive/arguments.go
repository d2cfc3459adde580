package directive

import (
	"errors"
	"slices"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// noArguments is the Setup check of directives that take neither arguments nor
// options and may be given once in a server block.
func noArguments(uses []corefile.Directive) error {
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options())
}

// oneArgument parses a directive without options that has at most one argument and
// may be given once in a server block. set parses the argument.
func oneArgument(uses []corefile.Directive, least int, set func(corefile.Directive) error) error {
	err := uses[0].Arity(least, 1)
	if err == nil {
		err = set(uses[0])
	}
	return errors.Join(config.Once(uses), err, uses[0].Options())
}

// lowerOptions returns d with the names of its options in lower case, for
// directives whose options CoreDNS accepts in any case.
func lowerOptions(d corefile.Directive) corefile.Directive {
	d.Body = slices.Clone(d.Body)
	for i := range d.Body {
		d.Body[i].Text = strings.ToLower(d.Body[i].Text)
	}
	return d
}
