package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A metric is one that a version's sources declare, or that a page documents.
type metric struct {
	name   string
	kind   string // counter, gauge or histogram
	labels string // sorted, with commas
}

func (m metric) String() string { return fmt.Sprintf("%s %s{%s}", m.kind, m.name, m.labels) }

// readMetrics returns the metrics that a version's sources declare with the functions of Prometheus' library,
// promauto.NewCounterVec(CounterOpts{Namespace: ..., Subsystem: ..., Name: ...}, labels), by their names.
func readMetrics(dir string) (map[string]metric, error) {
	packages := map[string][]*ast.File{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], file)
		return nil
	})
	if err != nil {
		return nil, err
	}

	found := map[string]metric{}
	for _, files := range packages {
		words := constants(files)
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if m := declaration(call, words); m.name != "" {
						found[m.name] = m
					}
				}
				return true
			})
		}
	}
	return found, nil
}

// declaration returns the metric that a call declares; its name is "" if the call declares none.
func declaration(call *ast.CallExpr, words map[string]string) (m metric) {
	if len(call.Args) == 0 {
		return m
	}
	options, ok := call.Args[0].(*ast.CompositeLit)
	if !ok || !isMetricOptions(options.Type) {
		return m
	}

	m.name = metricName(options, words)
	m.kind = strings.ToLower(strings.TrimSuffix(options.Type.(*ast.SelectorExpr).Sel.Name, "Opts"))
	if len(call.Args) == 1 {
		return m
	}
	if list, ok := call.Args[1].(*ast.CompositeLit); ok {
		var labels []string
		for _, element := range list.Elts {
			text, ok := literal(element, words)
			if !ok {
				text = "?" // no page has it, so that it is reported
			}
			labels = append(labels, text)
		}
		m.labels = strings.Join(slices.Sorted(slices.Values(labels)), ",")
	}
	return m
}

// item is a metric of docs/reference/metrics.md: its name, its labels, and its type if the name does not show it.
var item = regexp.MustCompile("(?m)^- `([a-z0-9_]+)(?:\\{([a-z0-9_,]*)\\})?`: (histogram: )?")

// pageMetrics returns the metrics that the text of docs/reference/metrics.md documents, by their names.
func pageMetrics(page string) map[string]metric {
	found := map[string]metric{}
	for _, match := range item.FindAllStringSubmatch(page, -1) {
		m := metric{name: match[1], kind: "gauge"}
		if m.labels = match[2]; m.labels != "" {
			m.labels = strings.Join(slices.Sorted(strings.SplitSeq(m.labels, ",")), ",")
		}
		switch {
		case match[3] != "":
			m.kind = "histogram"
		case strings.HasSuffix(m.name, "_total"):
			m.kind = "counter"
		}
		found[m.name] = m
	}
	return found
}

// documentedMetric matches the name of a metric in a document, without the ending of a series of a histogram.
var documentedMetric = regexp.MustCompile(`\bcoredns_[a-z0-9_]*?[a-z0-9](?:_count\b|_sum\b|_bucket\b|\b)`)

// documentedMetrics returns the names of metrics in a version's pages, manual pages and release notes.
func documentedMetrics(dir string) ([]string, error) {
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".md") && filepath.Base(filepath.Dir(path)) != "man" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range documentedMetric.FindAllString(string(text), -1) {
			for _, end := range []string{"_count", "_sum", "_bucket"} {
				name = strings.TrimSuffix(name, end)
			}
			found[name] = true
		}
		return err
	})
	return slices.Sorted(maps.Keys(found)), err
}

// constants returns the strings that files give a name.
func constants(files []*ast.File) map[string]string {
	words := map[string]string{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == len(spec.Names) {
				for i, value := range spec.Values {
					if text, ok := literal(value, nil); ok {
						words[spec.Names[i].Name] = text
					}
				}
			}
			return true
		})
	}
	return words
}

// isMetricOptions reports whether a type is prometheus.CounterOpts or another of its kind.
func isMetricOptions(x ast.Expr) bool {
	s, ok := x.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := s.X.(*ast.Ident)
	return ok && from.Name == "prometheus" && strings.HasSuffix(s.Sel.Name, "Opts")
}

// metricName returns the name of the metric with these options, "" if it has none. Each namespace that is not a
// text is CoreDNS's own constant.
func metricName(options *ast.CompositeLit, words map[string]string) string {
	parts := [3]string{}
	for _, element := range options.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, _ := pair.Key.(*ast.Ident)
		i := slices.Index([]string{"Namespace", "Subsystem", "Name"}, key.Name)
		if i < 0 {
			continue
		}
		if parts[i], ok = literal(pair.Value, words); !ok && i == 0 {
			parts[i] = "coredns"
		}
	}

	if parts[2] == "" {
		return ""
	}
	return strings.Join(slices.DeleteFunc(parts[:], func(p string) bool { return p == "" }), "_")
}
