package server

import (
	"errors"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// foldUnclosed returns the error of the uses of a directive in which one error stands for all those that
// a missing } causes: the directives that follow are then its options.
func (p *Plan) foldUnclosed(uses []corefile.Directive, err error) error {
	if err == nil {
		return nil
	}
	errs := corefile.All(err)
	for _, d := range uses {
		errs = p.foldUse(d, errs)
	}
	return errors.Join(errs...)
}

// foldUse is foldUnclosed for one use.
func (p *Plan) foldUse(d corefile.Directive, errs []error) []error {
	var strays []corefile.Directive
	for _, o := range d.Body {
		failed := func(err error) bool { return isAt(err, o.File, o.Line, o.Line) }
		if p.isDirective(o.Text) && slices.ContainsFunc(errs, failed) {
			strays = append(strays, o)
		}
	}
	if len(strays) < 3 { // some options have a directive's name
		return errs
	}

	first := strays[0]
	errs = slices.DeleteFunc(errs, func(err error) bool { return isAt(err, first.File, first.Line, lastLine(d)) })
	return append(errs, first.Token.Errorf(d.Path,
		"%s and %d more lines are directives, not options: is a } missing above?", first.Text, len(strays)-1))
}

// isAt reports whether err is that of one of some lines.
func isAt(err error, file string, from, to int) bool {
	at, ok := errors.AsType[*corefile.Error](err)
	return ok && at.File == file && from <= at.Line && at.Line <= to
}

func (p *Plan) isDirective(word string) bool {
	return slices.ContainsFunc(p.opts.Directives, func(d config.Directive) bool { return d.Name == word })
}

// lastLine returns the last line of d and of what is in its braces.
func lastLine(d corefile.Directive) int {
	line := d.Line
	for _, o := range d.Body {
		line = max(line, lastLine(o))
	}
	return line
}
