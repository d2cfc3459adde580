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
)

// An Errors logs why queries were answered with an error: the errors directive.
//
//	errors [stdout] {
//	    stacktrace
//	    consolidate DURATION REGEXP [LEVEL] [show_first]
//	}
//
// Each query that failed for a reason that can be told gets a line on standard
// output, with the response code as a number, the name and the type:
//
//	[ERROR] plugin/errors: 2 api.shop.svc.cluster.local. A: the answer leads back to its own question
//
// A name that does not exist is no error.
//
// stacktrace also writes the stack of a handler that panicked.
//
// consolidate counts the errors whose text matches REGEXP and writes one line
// for all those of DURATION (1ms to 24h), which begins with the first of them,
// instead of a line for each. LEVEL is that line's: warning, error (the
// default), info or debug, which is not written unless the server logs its own
// debug lines: see debug. With show_first the first error is written at once, and the
// count follows if there were more. consolidate may be given several times; the
// first REGEXP that matches counts. What has been counted when the server stops
// or reloads is written then.
//
//	[WARNING] plugin/errors: 3 errors like '^read udp .* i/o timeout$' occurred in last 30s
//
// Lines wait in memory for standard output, 1 MB at most; what does not fit is
// dropped and counted in seamark_log_dropped_lines_total.
//
// A server that says briefly what went wrong, and says timeouts once in half a
// minute:
//
//	.:1053 {
//	    errors {
//	        consolidate 30s "^read udp .* i/o timeout$" warning show_first
//	        consolidate 1m .
//	    }
//	    whoami
//	}
//
// Same as CoreDNS: syntax and lines. Differs: counts are written on a reload,
// not only at their period's end, and a full pipe delays no query.
type Errors struct {
	stacktrace bool
	patterns   []*pattern
	out        *lines
	log        *slog.Logger
}

// A pattern is one consolidate option and what it has counted in its period.
type pattern struct {
	errors *Errors
	period time.Duration
	text   *regexp.Regexp
	level  string
	first  bool

	mu    sync.Mutex
	count int
	timer *time.Timer // runs while count > 0
	ended bool
}

type errorsKey struct {
	plan   *config.Start
	errors *Errors
}

// SetupErrors is the Setup of errors.
func SetupErrors(b *config.Block, uses []corefile.Directive) error {
	e, d := &Errors{log: b.Log}, uses[0]
	err := errors.Join(config.Once(uses), d.Arity(0, 1), d.Options(
		corefile.Option{Name: "stacktrace", Set: corefile.Flag(&e.stacktrace)},
		corefile.Option{Name: "consolidate", Min: 2, Max: 4, Set: e.consolidate},
	))
	if len(d.Args) == 1 && d.Args[0].Text != "stdout" {
		err = errors.Join(err, d.Errorf("want stdout or nothing, got %q", d.Args[0].Text))
	}
	b.Offer(e)
	b.OnStart(func(s *config.Start) (err error) {
		if e.out, err = startLines(s, b); err != nil {
			return err
		}
		_, err = config.Keep(s, errorsKey{s, e}, func() (*Errors, error) { return e, nil })
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
	if p.text, err = regexp.Compile(args[1]); err != nil {
		return d.Errorf("%v", err)
	}
	levels := []string{"warning", "error", "info", "debug"}
	for i, word := range args[2:] {
		switch {
		case word == "show_first":
			p.first = true
		case i == 0 && slices.Contains(levels, word):
			p.level = strings.ToUpper(word)
		default:
			return d.Errorf("want %s or show_first, got %q", strings.Join(levels, ", "), word)
		}
	}
	e.patterns = append(e.patterns, p)
	return nil
}

// ObserveDNS writes or counts the error of a query that has one.
func (e *Errors) ObserveDNS(q *dns.Query) {
	if q.Err == nil {
		return
	}
	text, level := q.Err.Error(), "ERROR"
	for _, p := range e.patterns {
		if !p.text.MatchString(text) {
			continue
		}
		if p.counts() {
			return
		}
		level = p.level
		break
	}
	e.write(level, "%d %s %s: %s", uint16(q.RCode), wireText(q.Name()), q.Type, text)
	var p *dns.Panic
	if e.stacktrace && errors.As(q.Err, &p) {
		e.write(level, "%s", p.Stack)
	}
}

func (e *Errors) write(level, format string, args ...any) {
	// The server's level may change with a reload.
	if level != "DEBUG" || e.log.Enabled(context.Background(), slog.LevelDebug) {
		e.out.write(fmt.Appendf(nil, "[%s] plugin/errors: "+format+"\n", append([]any{level}, args...)...))
	}
}

// counts counts one error. It is false if that is to be written all the same.
func (p *pattern) counts() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.count++
	if p.count > 1 {
		return true
	}
	p.timer = time.AfterFunc(p.period, p.summary)
	return !p.first
}

// summary writes and forgets what was counted.
func (p *pattern) summary() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count > 1 || p.count == 1 && !p.first {
		p.errors.write(p.level, "%d errors like '%s' occurred in last %s", p.count, p.text, p.period)
	}
	p.count = 0
}

// Stop writes what has been counted so far.
func (e *Errors) Stop() {
	for _, p := range e.patterns {
		p.mu.Lock()
		p.ended = true
		if p.timer != nil {
			p.timer.Stop()
		}
		p.mu.Unlock()
		p.summary()
	}
}
