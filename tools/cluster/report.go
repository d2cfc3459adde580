//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Outcomes of a test.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

// A report has the results of a run.
type report struct {
	Date     time.Time         `json:"date"`
	Seconds  float64           `json:"seconds"`
	Versions map[string]string `json:"versions"`
	Cluster  string            `json:"cluster"`
	Machine  string            `json:"machine"`
	Results  []result          `json:"results"`
}

// A result is that of a test with a server.
type result struct {
	Server  string    `json:"server"`
	Suite   string    `json:"suite"`
	Name    string    `json:"name"`
	Outcome string    `json:"outcome"`
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"`
	Message string    `json:"message,omitempty"` // why it failed or was skipped, or what was measured
}

// count returns the number of results of a server and a suite with an outcome.
func (r *report) count(server, suite, outcome string) (n int) {
	for _, t := range r.Results {
		if t.Server == server && t.Suite == suite && t.Outcome == outcome {
			n++
		}
	}
	return n
}

// groups returns the servers and suites of the results, in their order.
func (r *report) groups() (groups [][2]string) {
	for _, t := range r.Results {
		if g := [2]string{t.Server, t.Suite}; !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups
}

// summary returns a table with the number of results.
func (r *report) summary() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "server\tsuite\tpassed\tfailed\tskipped")
	for _, g := range r.groups() {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", g[0], g[1],
			r.count(g[0], g[1], passed), r.count(g[0], g[1], failed), r.count(g[0], g[1], skipped))
	}
	w.Flush()
	return b.String()
}

// verdict returns an error if Seamark failed where the control did not. Where both fail, the
// environment is the cause.
func (r *report) verdict() error {
	control := map[string]string{}
	for _, t := range r.Results {
		if t.Server == "coredns" {
			control[t.Suite+t.Name] = t.Outcome
		}
	}

	var errs []error
	for _, t := range r.Results {
		if t.Server == "seamark" && t.Outcome == failed && control[t.Suite+t.Name] != failed {
			errs = append(errs, fmt.Errorf("seamark fails: %s", t.Name))
		}
	}
	return errors.Join(errs...)
}

// text returns the report for readers.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Conformance, %s, %.0f s\n", r.Date.Format(time.RFC3339), r.Seconds)
	fmt.Fprintf(&b, "%s\n%s\n", r.Machine, r.Cluster)
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(&b, "%s %s\n", name, r.Versions[name])
	}

	fmt.Fprintf(&b, "\n%s", r.summary())
	for _, g := range r.groups() {
		fmt.Fprintf(&b, "\n%s, %s\n", g[0], g[1])
		for _, t := range r.Results {
			if t.Server != g[0] || t.Suite != g[1] {
				continue
			}
			fmt.Fprintf(&b, "  %-7s %6.1f s  %s\n", t.Outcome, t.Seconds, t.Name)
			for line := range strings.Lines(t.Message) {
				fmt.Fprintf(&b, "      %s\n", strings.TrimRight(line, "\n"))
			}
		}
	}
	return b.String()
}

// The elements of a report in JUnit's format.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Timestamp  string          `xml:"timestamp,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitMessage `xml:"failure"`
		Skipped *junitMessage `xml:"skipped"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// junit returns the report for the programs that read JUnit's.
func (r *report) junit() ([]byte, error) {
	var all junitSuites
	for _, g := range r.groups() {
		s := junitSuite{Name: g[0] + "." + g[1]}
		for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
			s.Properties = append(s.Properties, junitProperty{name, r.Versions[name]})
		}

		var total float64
		var first time.Time
		for _, t := range r.Results {
			if t.Server != g[0] || t.Suite != g[1] {
				continue
			}
			c := junitCase{Class: s.Name, Name: t.Name, Time: fmt.Sprintf("%.3f", t.Seconds)}
			line, _, _ := strings.Cut(t.Message, "\n")
			switch message := (&junitMessage{line, t.Message}); t.Outcome {
			case failed:
				c.Failure = message
				s.Failures++
			case skipped:
				c.Skipped = message
				s.Skipped++
			default:
				c.Output = t.Message
			}
			s.Cases = append(s.Cases, c)
			s.Tests++
			total += t.Seconds
			first = cmp.Or(first, t.Start)
		}
		s.Time, s.Timestamp = fmt.Sprintf("%.3f", total), first.UTC().Format("2006-01-02T15:04:05")
		all.Suites = append(all.Suites, s)
	}

	text, err := xml.MarshalIndent(all, "", "  ")
	return append([]byte(xml.Header), append(text, '\n')...), err
}

// write writes the report in its three forms.
func (r *report) write(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	junit, err := r.junit()
	if err != nil {
		return err
	}
	return errors.Join(
		replaceFile(filepath.Join(dir, "report.txt"), []byte(r.text()), 0o644),
		replaceFile(filepath.Join(dir, "report.json"), append(text, '\n'), 0o644),
		replaceFile(filepath.Join(dir, "report.xml"), junit, 0o644),
	)
}
