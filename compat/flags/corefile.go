package flags

import (
	"strconv"
	"strings"

	"github.com/seamark/seamark/corefile"
)

// A Writer writes the Corefile for the flags and the environment of a command, and
// collects the mistakes in them.
type Writer struct {
	Getenv func(string) string // returns an environment variable
	text   strings.Builder
	errs   Errors
}

// Block writes a server block. body writes its directives.
func (w *Writer) Block(key string, body func()) {
	w.text.WriteString(key + " {\n")
	body()
	w.text.WriteString("}\n")
}

// Directive writes a directive of the current block, with its options, if any, in
// braces.
func (w *Writer) Directive(head string, options ...string) {
	w.text.WriteString("    " + head)
	if len(options) > 0 {
		w.text.WriteString(" {\n        " + strings.Join(options, "\n        ") + "\n    }")
	}
	w.text.WriteString("\n")
}

// When writes a directive if a condition holds.
func (w *Writer) When(holds bool, head string, options ...string) {
	if holds {
		w.Directive(head, options...)
	}
}

// Errors writes the directive errors, with one line for all errors of a failing
// upstream.
func (w *Writer) Errors() { w.Directive("errors", "consolidate 30s . warning show_first") }

// Metrics writes the directive skydns_metrics if the environment sets its port.
func (w *Writer) Metrics() {
	port := w.Getenv("PROMETHEUS_PORT")
	if port == "" {
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		w.Fail("PROMETHEUS_PORT: want a port of 1..65535, got %q", port)
	}
	path := w.Getenv("PROMETHEUS_PATH")
	if path == "" {
		path = "/metrics"
	}
	var options []string
	for _, part := range [...]string{"namespace", "subsystem"} {
		variable := "PROMETHEUS_" + strings.ToUpper(part)
		if name := w.Getenv(variable); name != "" {
			options = append(options, part+" "+w.Word(variable, name))
		}
	}
	w.Directive("skydns_metrics :"+port+" "+w.Word("PROMETHEUS_PATH", path), options...)
}

// Word returns text as a word of a Corefile. flag is the flag or variable that has
// the text.
func (w *Writer) Word(flag, text string) string {
	written, err := corefile.Word(text)
	if err != nil {
		w.Fail("%s: %w", flag, err)
	}
	return written
}

// Fail adds an error.
func (w *Writer) Fail(format string, args ...any) { w.FailIf(true, format, args...) }

// FailIf adds an error if a flag is bad.
func (w *Writer) FailIf(bad bool, format string, args ...any) { w.errs.If(bad, format, args...) }

// Add adds errors; nil is none.
func (w *Writer) Add(errs ...error) { w.errs.Add(errs...) }

// Check returns why the server cannot serve the Corefile text, by the function check for
// its blocks.
func Check(name, text string, check func([]corefile.Server) error) error {
	r := corefile.ReadText(name, []byte(text))
	if r.Err != nil {
		return r.Err
	}
	return check(r.Servers)
}

// Corefile returns the text and the errors.
func (w *Writer) Corefile() (string, error) { return w.text.String(), w.errs.Join() }
