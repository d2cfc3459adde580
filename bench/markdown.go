//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// show formats a spread.
func show(s spread, unit string) string {
	text := digits(s.Median)
	if unit != "" {
		text += " " + unit
	}
	if s.Min != s.Max {
		text += fmt.Sprintf(" (%s to %s)", digits(s.Min), digits(s.Max))
	}
	return text
}

// digits formats a number with its significant digits.
func digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.1 || v == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// markdown returns the report as a page.
func (r *report) markdown() string {
	var w strings.Builder
	fmt.Fprintf(&w, "# Benchmark of %s\n\n", r.Date.Format("2006-01-02 15:04 MST"))
	fmt.Fprintf(&w, "Commit %s on %d × %s, Linux %s. %d Services with %d endpoints in %d namespaces.\n",
		r.Commit, r.Machine.CPUs, r.Machine.CPU, r.Machine.Kernel, r.Cluster["services"], r.Cluster["endpoints"],
		r.Cluster["namespaces"])
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(&w, "- %s: %s\n", name, r.Versions[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Method)) {
		fmt.Fprintf(&w, "- %s: %s\n", name, r.Method[name])
	}
	w.WriteString("\nMedian of the rounds, and least to most. Microseconds of CPU compare only within one run.\n")
	r.writeGoals(&w)
	r.writeResults(&w)
	r.writeNumbers(&w)
	if len(r.Missing) > 0 {
		w.WriteString("\n## Not measured\n\n")
		for _, text := range r.Missing {
			fmt.Fprintf(&w, "- %s\n", text)
		}
	}
	return w.String()
}

func (r *report) writeGoals(w *strings.Builder) {
	w.WriteString("\n## Goals\n\n| goal | limit | measured | verdict |\n|---|---|---|---|\n")
	for _, v := range r.Goals {
		value := ""
		if v.Value != nil {
			value = show(*v.Value, v.Unit)
		}
		limit := ""
		if v.Limit > 0 {
			limit = strings.TrimSpace(digits(v.Limit) + " " + v.Unit)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", v.Goal, limit, value, v.Verdict)
	}
}

func (r *report) writeResults(w *strings.Builder) {
	scenario := ""
	for _, res := range r.Results {
		if res.Scenario != scenario {
			scenario = res.Scenario
			fmt.Fprintf(w, "\n## %s\n\n", res.Title)
			w.WriteString("| | CPU µs/answer | of it user | machine µs/answer | answers/s | machine busy | p50 ms | p99 ms | bytes | lost | wrong | load |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
		}
		median := func(f func(sample) float64) float64 { return spreadOf(res.values(f)).Median }
		lost, wrong := 0, 0
		for _, s := range res.Samples {
			lost, wrong = lost+s.Lost, wrong+s.Wrong
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %.0f | %.0f %% | %.3f | %.3f | %.0f | %d | %d | %s |\n", res.Label,
			show(res.CPU, ""),
			digits(median(func(s sample) float64 { return s.User })),
			digits(median(func(s sample) float64 { return s.Machine })),
			median(func(s sample) float64 { return s.Rate }),
			100*median(func(s sample) float64 { return s.Busy }), median(func(s sample) float64 { return s.P50 }),
			median(func(s sample) float64 { return s.P99 }), median(func(s sample) float64 { return s.Bytes }),
			lost, wrong, res.Load)
	}
}

func (r *report) writeNumbers(w *strings.Builder) {
	if len(r.Numbers) == 0 {
		return
	}
	w.WriteString("\n## Others\n\n| | |\n|---|---|\n")
	for _, n := range r.Numbers {
		fmt.Fprintf(w, "| %s | %s |\n", n.Title, show(spreadOf(n.Values), n.Unit))
	}
}
