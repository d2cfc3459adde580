package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// readMetrics returns the names of the metrics that a version's sources declare with the options of
// Prometheus' library: CounterOpts{Namespace: ..., Subsystem: ..., Name: ...}.
func readMetrics(dir string) (names []string, err error) {
	packages := map[string][]*ast.File{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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

	found := features{}
	for _, files := range packages {
		words := constants(files)
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if options, ok := n.(*ast.CompositeLit); ok && isMetricOptions(options.Type) {
					if name := metricName(options, words); name != "" {
						found[name] = true
					}
				}
				return true
			})
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
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
