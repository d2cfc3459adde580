package cmd

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/operate/shadow"
)

// writeShadow writes a report of shadow as text.
func writeShadow(w io.Writer, r *shadow.Report) error {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(explain.Clean(fmt.Sprintf(format, args...)) + "\n") }
	line("%s in %v of the capture: %d with a response, %d without, %d sent again",
		counted(r.Queries, "query", "queries"), r.Captured.Round(time.Millisecond),
		r.Answered, r.Unanswered, r.Repeated)
	line("%d compared in %v: %d same, %d differ, %d differ as documented",
		r.Compared, r.Time.Round(time.Millisecond), r.Same, r.Different, r.Documented)
	if r.Late > 0 {
		line("queries were asked up to %v behind the pace of the capture", r.Late.Round(time.Millisecond))
	}
	if r.Unasked > 0 {
		line("%s to queries that are not in the capture", counted(r.Unasked, "response", "responses"))
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Skipped)) {
		line("not used (%d): %s", r.Skipped[reason], reason.Text())
	}

	if r.Answered > 0 {
		line("")
		line("%-22s %s", "response codes:", shares(r.RCodes))
		nxdomain := r.RCodes["NXDOMAIN"]
		line("%-22s %d of %d NXDOMAIN responses, %s of the queries",
			"for search paths:", r.SearchPath, nxdomain, share(r.SearchPath, r.Answered))
		line("%-22s median %v, 99 %% within %v",
			"time of the server:", rounded(r.Latency.Median), rounded(r.Latency.P99))
	}
	if r.Compared > 0 {
		line("%-22s median %v, 99 %% within %v",
			"  in Seamark alone:", rounded(r.SeamarkLatency.Median), rounded(r.SeamarkLatency.P99))
		line("%-22s %d of the server, %d of Seamark", "bytes of the answers:", r.ComparedBytes, r.SeamarkBytes)
	}
	if len(r.Directives) > 0 {
		line("%-22s %s", "answered by:", shares(r.Directives))
		line("%-22s %d, for %s of the queries; the others need none",
			"queries to upstreams:", r.Upstream, share(r.WithUpstream, r.Compared))
	}

	for _, g := range r.Groups {
		line("")
		line("%s: %s, %s (%s)", g.Subject, g.Cause, counted(g.Count, "time", "times"), g.Type)
		if g.Reason != "" {
			line("  documented: %s", g.Reason)
		}
		line("  example: %s %s from %s at %s",
			g.Example.Name, g.Example.Type, g.Client, g.Time.UTC().Format("2006-01-02T15:04:05.000Z"))
		for _, text := range g.Example.Expected {
			line("    - %s", text)
		}
		for _, text := range g.Example.Received {
			line("    + %s", text)
		}
	}

	if len(r.Groups) > 0 {
		line("")
		line("- is Seamark's answer, + the captured response: the cause says what the captured server has instead")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// counted returns a number and the noun for what it counts.
func counted[N int | uint64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// shares returns the names with their counts and shares, the largest first.
func shares(counts map[string]int) string {
	total := 0
	for _, n := range counts {
		total += n
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d (%s)", name, counts[name], share(counts[name], total))
	}
	return strings.Join(names, ", ")
}

func share(n, of int) string { return percent(float64(n) / float64(max(of, 1))) }

// rounded returns a duration with three digits or so.
func rounded(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Microsecond:
		return d.Round(10 * time.Nanosecond)
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
