package explain

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
)

// Write writes a result as text for a person.
func Write(w io.Writer, r Result) {
	fmt.Fprintf(w, "%s %s from %s at %s\n", clean(r.Name), r.Type, r.Client, r.Server)
	fmt.Fprintf(w, "  %s\n", clean(r.Summary))
	for _, record := range r.Answer {
		fmt.Fprintf(w, "    %s\n", clean(record))
	}
	if r.Error != "" {
		fmt.Fprintf(w, "  error: %s\n", clean(r.Error))
	}
	for _, name := range r.Nearest {
		fmt.Fprintf(w, "  did you mean %s\n", clean(name))
	}
	for _, s := range r.Steps {
		writeStep(w, s)
	}
}

func writeStep(w io.Writer, s Step) {
	indent := strings.Repeat("  ", s.Depth+1)
	where := "zone " + s.Zone
	if s.View != "" {
		where += ", view " + s.View
	}
	if s.Depth > 0 {
		where += ", for " + s.Name + " " + s.Type
	}
	fmt.Fprintf(w, "%s%-12s %-9s (%s)\n", indent, s.Directive, s.Verdict, clean(where))
	for _, c := range s.Causes {
		fmt.Fprintf(w, "%s    %s\n", indent, clean(c.Text))
	}
	for _, x := range s.Upstreams {
		if x.RCode == "" {
			fmt.Fprintf(w, "%s    no reply from %s over %s\n", indent, x.Upstream, x.Protocol)
			continue
		}
		fmt.Fprintf(w, "%s    %s from %s over %s in %v\n", indent, x.RCode, x.Upstream, x.Protocol, x.Duration.Round(10*time.Microsecond))
	}
}

// clean replaces what a terminal might interpret: names and texts are from clients and
// other servers.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
