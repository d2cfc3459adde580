package explain

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
)

// maxIndent is the depth from which on steps are not indented more.
const maxIndent = 20

// Write writes a result as text for a person.
func Write(w io.Writer, r Result) {
	line := func(format string, args ...any) { fmt.Fprintln(w, Clean(fmt.Sprintf(format, args...))) }
	line("%s %s from %s at %s", r.Name, r.Type, r.Client, r.Server)
	line("  %s", r.Summary)
	for _, record := range r.Answer {
		line("    %s", record)
	}
	if r.Error != "" {
		line("  error: %s", r.Error)
	}
	for _, name := range r.Nearest {
		line("  did you mean %s", name)
	}
	for _, s := range r.Steps {
		writeStep(line, s)
	}
}

func writeStep(line func(format string, args ...any), s Step) {
	indent := strings.Repeat("  ", min(s.Depth, maxIndent)+1)
	where := "zone " + s.Zone
	if s.View != "" {
		where += ", view " + s.View
	}
	if s.Depth > 0 {
		where += ", for " + s.Name + " " + s.Type
	}
	line("%s%-12s %-9s (%s)", indent, s.Directive, s.Verdict, where)
	for _, c := range s.Causes {
		line("%s    %s", indent, c.Text)
	}
	for _, x := range s.Upstreams {
		if x.RCode == "" {
			line("%s    no reply from %s over %s", indent, x.Upstream, x.Protocol)
			continue
		}
		line("%s    %s from %s over %s in %v", indent, x.RCode, x.Upstream, x.Protocol, x.Duration.Round(10*time.Microsecond))
	}
}

// Clean replaces characters that a terminal might interpret: names and texts are from
// clients and other servers.
func Clean(s string) string {
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
