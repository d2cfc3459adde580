package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/seamark/seamark/corefile"
)

// A finding is an error or a warning of check.
type finding struct {
	File      string `json:"file"`
	Line      int    `json:"line,omitempty"` // 0 if it is about the whole file
	Level     string `json:"level"`          // error or warning
	Directive string `json:"directive,omitempty"`
	Message   string `json:"message"`
	checked   string // name of the checked file; File may be a file that it imports
}

// text returns the finding as text, with its position if it has one.
func (f finding) text() string {
	if f.Line == 0 {
		return f.Message
	}
	return (&corefile.Error{File: f.File, Line: f.Line, Path: f.Directive, Text: f.Message}).Error()
}

// message returns the message with its directive, if it has one.
func (f finding) message() string {
	if f.Directive == "" {
		return f.Message
	}
	return f.Directive + ": " + f.Message
}

// newFinding returns err, which is about file, as a finding.
func newFinding(file, level string, err error) finding {
	if e, ok := errors.AsType[*corefile.Error](err); ok {
		return finding{e.File, e.Line, level, e.Path, e.Text, file}
	}
	return finding{File: file, Level: level, Message: err.Error(), checked: file}
}

// newFindings returns errors and warnings about a file as findings.
func newFindings(file string, errs, warnings []error) (found []finding) {
	for _, err := range errs {
		found = append(found, newFinding(file, "error", err))
	}
	for _, err := range warnings {
		found = append(found, newFinding(file, "warning", err))
	}
	return found
}

// findingWriters write findings in the formats of check --output.
var findingWriters = map[string]func(w io.Writer, version string, found []finding) error{
	"json":   writeJSON,
	"sarif":  writeSARIF,
	"github": writeGitHub,
}

func writeJSON(w io.Writer, _ string, found []finding) error {
	return indented(w, struct {
		Findings []finding `json:"findings"`
	}{append([]finding{}, found...)})
}

func indented(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// writeGitHub writes workflow commands, which GitHub shows beside the lines.
func writeGitHub(w io.Writer, _ string, found []finding) error {
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	message := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	for _, f := range found {
		_, err := fmt.Fprintf(w, "::%s file=%s,line=%d::%s\n",
			f.Level, property.Replace(f.File), max(f.Line, 1), message.Replace(f.message()))
		if err != nil {
			return err
		}
	}
	return nil
}

// writeSARIF writes a log of the Static Analysis Results Interchange Format 2.1.0. The
// rule of a finding is its directive.
func writeSARIF(w io.Writer, version string, found []finding) error {
	type (
		text struct {
			Text string `json:"text"`
		}
		artifact struct {
			URI string `json:"uri"`
		}
		region struct {
			StartLine int `json:"startLine"`
		}
		physical struct {
			Artifact artifact `json:"artifactLocation"`
			Region   *region  `json:"region,omitempty"`
		}
		location struct {
			Physical physical `json:"physicalLocation"`
		}

		result struct {
			RuleID    string     `json:"ruleId"`
			Level     string     `json:"level"`
			Message   text       `json:"message"`
			Locations []location `json:"locations"`
		}
		driver struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		}
		tool struct {
			Driver driver `json:"driver"`
		}
		run struct {
			Tool    tool     `json:"tool"`
			Results []result `json:"results"`
		}
	)

	results := []result{}
	for _, f := range found {
		rule, _, _ := strings.Cut(f.Directive, ":")
		if rule == "" {
			rule = "corefile"
		}

		at := physical{Artifact: artifact{f.File}}
		if f.Line > 0 {
			at.Region = &region{f.Line}
		}
		results = append(results, result{rule, f.Level, text{f.message()}, []location{{at}}})
	}

	return indented(w, struct {
		Schema  string `json:"$schema"`
		Version string `json:"version"`
		Runs    []run  `json:"runs"`
	}{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []run{{tool{driver{"seamark", version}}, results}}})
}
