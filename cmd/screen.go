package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/seamark/seamark/operate/table"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/terminal"
	"github.com/spf13/cobra"
)

// A screen has the flags of commands that show the present state.
type screen struct {
	color string
	watch bool
	every time.Duration
}

func (s *screen) flags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVarP(&s.watch, "watch", "w", false, "show the state again and again, until Ctrl-C")
	f.DurationVar(&s.every, "interval", 2*time.Second, "time between two states of --watch")
	f.StringVar(&s.color, "color", "auto",
		"`WHEN` to use colors: auto (on a terminal, without NO_COLOR), always or never")
	complete(c, "color", "auto", "always", "never")
}

// check returns the errors of the command line.
func (s *screen) check() error {
	if s.every < 100*time.Millisecond {
		return fmt.Errorf("--interval: want a duration of 100ms or more, got %v", s.every)
	}
	return oneOf("color", s.color, "auto", "always", "never")
}

// colors returns the colors of p's output: none by NO_COLOR (no-color.org) and for programs that read it.
func (s *screen) colors(p *program) colors {
	switch s.color {
	case "always":
		return true
	case "never":
		return false
	}
	return colors(os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal.Is(p.console()))
}

// newTable returns a table that fits on the terminal of the output.
func (p *program) newTable() *table.Table { return table.New(p.out, terminal.Columns(p.console())) }

// clear moves the cursor to the upper left corner and erases what is below.
const clear = "\x1b[H\x1b[J"

// watch calls show, with --watch again and again until ctx ends. Each state is written at once, and
// replaces the one before on a terminal.
func (p *program) watch(ctx context.Context, s screen, show func() error) error {
	if !s.watch {
		return show()
	}

	out := p.out
	defer func() { p.out = out }()
	for onTerminal := terminal.Is(p.log()); ; {
		p.out = out
		state := &frame{console: p.console()}
		p.out = state
		err := show()
		if f, ok := errors.AsType[failure](err); ok { // it may answer later
			fmt.Fprintln(state, visible(f.Error()))
		} else if err != nil && !errors.As(err, new(different)) {
			return err
		}

		text := state.Bytes()
		if onTerminal {
			text = append([]byte(clear), text...)
		} else {
			text = append(text, '\n')
		}
		if _, err := out.Write(text); err != nil {
			return failure{err}
		}

		if !clock.Sleep(ctx, s.every) {
			return nil
		}
	}
}

// colors reports whether texts have colors and marks.
type colors bool

func (c colors) style(code, text string) string {
	if !c {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (c colors) bold(text string) string  { return c.style("1", text) }
func (c colors) faint(text string) string { return c.style("2", text) }
func (c colors) red(text string) string   { return c.style("31", text) }

// good and bad return the marks in front of a server, nothing without colors.
func (c colors) good() string { return c.symbol("32", "✔ ") }
func (c colors) bad() string  { return c.symbol("31", "✖ ") }

func (c colors) symbol(code, text string) string {
	if !c {
		return ""
	}
	return c.style(code, text)
}

// mark returns the mark of a server with conditions, the worst first.
func (c colors) mark(conditions []health.Condition) string {
	switch {
	case !health.Real(conditions):
		return c.good()
	case conditions[0].Severity == health.Critical:
		return c.bad()
	}
	return c.symbol("33", "! ")
}

// severity returns text in the color of a severity.
func (c colors) severity(s health.Severity, text string) string {
	code := map[health.Severity]string{health.Critical: "31;1", health.Warning: "33", health.Note: "36"}[s]
	if code == "" {
		return text
	}
	return c.style(code, text)
}
