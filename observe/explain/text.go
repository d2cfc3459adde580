package explain

import (
	"fmt"
	"io"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/seamark/seamark/dns"
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
	if r.Kernel != nil {
		line("  %s", r.Kernel)
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
		if c.Object == nil {
			continue
		}
		if text := Details(*c.Object, time.Now()); text != "" {
			line("%s      %s %s: %s", indent, c.Object.Kind, path.Join(c.Object.Namespace, c.Object.Name), text)
		}
	}

	for _, x := range s.Upstreams {
		if x.RCode == "" {
			line("%s    no reply from %s over %s", indent, x.Upstream, x.Protocol)
			continue
		}
		line("%s    %s from %s over %s in %v",
			indent, x.RCode, x.Upstream, x.Protocol, x.Duration.Round(10*time.Microsecond))
	}
}

// Details returns the metadata of an object as text, "" if there are none.
func Details(o dns.Object, now time.Time) string {
	var known []string
	switch {
	case o.Unknown != "":
		known = append(known, "resourceVersion unknown: "+o.Unknown)
	case o.ResourceVersion != "":
		known = append(known, "resourceVersion "+o.ResourceVersion)
	}
	if !o.Created.IsZero() {
		known = append(known, fmt.Sprintf("age %s (created %s)",
			age(now.Sub(o.Created)), o.Created.UTC().Format(time.RFC3339)))
	}
	if o.File != "" {
		known = append(known, o.File)
	}
	return strings.Join(known, ", ")
}

// age returns a duration in its largest unit, as kubectl prints ages.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", max(0, d)/time.Second)
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
