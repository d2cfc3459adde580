package directive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/linewriter"
	"github.com/seamark/seamark/wire"
)

// Errors logs why queries were answered with an error: the errors directive. Its reference
// page is docs/reference/directives/errors.md.
type Errors struct {
	stacktrace bool
	json       bool
	patterns   []*pattern
	out        *linewriter.Writer
	log        *slog.Logger
}

// A pattern is one consolidate option and the count of its current period.
type pattern struct {
	errors    *Errors
	period    time.Duration
	regexp    *regexp.Regexp
	level     string
	showFirst bool

	mu      sync.Mutex
	count   int
	timer   *time.Timer // runs while count > 0
	stopped bool
}

// SetupErrors sets up the errors directive.
func SetupErrors(b *config.Block, uses []corefile.Directive) error {
	e, d := &Errors{log: b.Log, json: b.JSONLog}, uses[0]
	err := errors.Join(config.Once(uses), d.Arity(0, 1), d.Options(
		corefile.Option{Usage: "stacktrace", Set: corefile.Flag(&e.stacktrace)},
		corefile.Option{Usage: "consolidate DURATION REGEXP [LEVEL] [show_first]", Set: e.consolidate},
	))
	if len(d.Args) == 1 && d.Args[0].Text != "stdout" {
		err = errors.Join(err, d.Errorf("want stdout or nothing, got %q", d.Args[0].Text))
	}
	b.Offer(e)
	b.OnStart(func(s *config.Start) (err error) {
		if e.out, err = standardOutput(s, b); err != nil {
			return err
		}
		_, err = config.Keep(s, e, func() (*Errors, error) { return e, nil })
		return err
	})
	return err
}

func (e *Errors) consolidate(d corefile.Directive) error {
	p := &pattern{errors: e, level: "ERROR"}
	args := d.Words()
	d.Args = d.Args[:1]
	if err := corefile.Duration(&p.period, time.Millisecond, 24*time.Hour)(d); err != nil {
		return err
	}
	var err error
	if p.regexp, err = regexp.Compile(args[1]); err != nil {
		return d.Errorf("%v", err)
	}

	levels := []string{"warning", "error", "info", "debug"}
	for i, word := range args[2:] {
		switch {
		case word == "show_first":
			p.showFirst = true
		case i == 0 && slices.Contains(levels, word):
			p.level = strings.ToUpper(word)
		default:
			return d.Errorf("want %s or show_first, got %q", strings.Join(levels, ", "), word)
		}
	}
	e.patterns = append(e.patterns, p)
	return nil
}

// Repetition reports that answers without an error need not be seen.
func (*Errors) Repetition() dns.Repetition { return dns.Repetition{} }

// ObserveDNS logs or counts q's error, if it has one.
func (e *Errors) ObserveDNS(q *dns.Query) {
	if q.Err == nil {
		return
	}
	text, level := q.Err.Error(), "ERROR"
	for _, p := range e.patterns {
		if !p.regexp.MatchString(text) {
			continue
		}
		if p.add() {
			return
		}
		level = p.level
		break
	}

	e.write(level, "%d %s %s: %s", uint16(q.RCode), wire.Name(q.Name()).String(), q.Type, text)
	if p, ok := errors.AsType[*dns.Panic](q.Err); ok && e.stacktrace {
		e.write(level, "%s", p.Stack)
	}
}

func (e *Errors) write(level, format string, args ...any) {
	// The server's level may change with a reload.
	if level == "DEBUG" && !e.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}

	text := fmt.Appendf(nil, format, args...)
	if e.json {
		record := appendMessage(nil, time.Now(), strings.TrimSuffix(level, "ING"), text, "errors") // slog's word is WARN
		_, _ = e.out.Write(append(record, "}\n"...))
		return
	}
	_, _ = e.out.Write(fmt.Appendf(nil, "[%s] plugin/errors: %s\n", level, text))
}

// add counts one error. It returns false if the error must be logged on its
// own.
func (p *pattern) add() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}

	p.count++
	if p.count > 1 {
		return true
	}
	p.timer = time.AfterFunc(p.period, p.summary)
	return !p.showFirst
}

// summary logs the count of the period that has ended, and resets it.
func (p *pattern) summary() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count > 1 || p.count == 1 && !p.showFirst {
		p.errors.write(p.level, "%d errors like '%s' occurred in last %s", p.count, p.regexp, p.period)
	}
	p.count = 0
}

// Stop logs the pending counts.
func (e *Errors) Stop() {
	for _, p := range e.patterns {
		p.mu.Lock()
		p.stopped = true
		if p.timer != nil {
			p.timer.Stop()
		}
		p.mu.Unlock()
		p.summary()
	}
}
