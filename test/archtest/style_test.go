package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// maxLines is the maximum length of a file. Tests are exempt, because a long
// table of cases is not hard to read.
const maxLines = 500

func sizes(m *module) (bad []string) {
	for _, p := range m.packages {
		for _, f := range p.files {
			if !f.test && f.lines > maxLines {
				bad = append(bad, fmt.Sprintf("%s: %d lines, at most %d", f.name, f.lines, maxLines))
			}
		}
	}
	return bad
}

// docs requires one package comment per package, in godoc's form.
func docs(m *module) (bad []string) {
	for _, p := range m.packages {
		var at []string
		for _, f := range p.files {
			if f.syntax.Doc == nil {
				continue
			}
			at = append(at, f.name)
			name := f.syntax.Name.Name
			if name != "main" && !f.test && !strings.HasPrefix(f.syntax.Doc.Text(), "Package "+name+" ") {
				bad = append(bad, fmt.Sprintf("%s: the package comment does not begin with %q", m.at(f.syntax), "Package "+name))
			}
		}
		switch {
		case len(at) == 0:
			bad = append(bad, fmt.Sprintf("%s: package has no doc comment", p.dir))
		case len(at) > 1:
			bad = append(bad, fmt.Sprintf("%s: package has several doc comments: %s", p.dir, strings.Join(at, ", ")))
		}
	}
	return bad
}

func names(m *module) (bad []string) {
	for _, p := range m.packages {
		for elem := range strings.SplitSeq(p.dir, "/") {
			if slices.Contains(vague, elem) {
				bad = append(bad, fmt.Sprintf("%s: %q is too general: name a package after its task", p.dir, elem))
			}
		}
	}
	return bad
}

// inits rejects func init: importing a package must have no effect, so that two
// servers can run in one process.
func inits(m *module) (bad []string) {
	m.eachDecl(func(f *file, d ast.Decl) {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			bad = append(bad, fmt.Sprintf("%s: func init: do it in a function that the caller calls", m.at(d)))
		}
	})
	return bad
}

// contextValues rejects context.WithValue: contexts are for cancellation, and
// other inputs are parameters. Nested modules are exempt, because they plug into
// libraries that require it.
func contextValues(m *module) (bad []string) {
	for _, p := range m.packages {
		for _, f := range p.files {
			name := importName(f.syntax, "context")
			if f.test || p.nested || name == "" {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "WithValue" {
					if x, ok := sel.X.(*ast.Ident); ok && x.Name == name {
						bad = append(bad, fmt.Sprintf("%s: context.WithValue: pass it as a parameter", m.at(sel)))
					}
				}
				return true
			})
		}
	}
	return bad
}

// unixTimes are the files that may use Unix times, and the purpose. A duration measured by
// them is wrong after a step of the system's clock: package clock is for durations.
var unixTimes = map[string]string{
	"cluster/snapshot/write.go":            "when a file was written",
	"directive/dnssec/message.go":          "times in signatures",
	"directive/kubernetes/live_journal.go": "a serial",
	"directive/file/load.go":               "times in signatures",
	"directive/etcd/answer.go":             "a serial",
	"directive/etcd/index.go":              "a serial",
	"directive/hosts/metrics.go":           "a metric",
	"directive/screen/answers.go":          "whether two logs are of the same second",
	"directive/secondary/save.go":          "when a primary confirmed the zone in a file",
	"directive/certificates.go":                     "a metric",
	"directive/trace/otlp.go":              "the times of a span",
	"directive/trace/zipkin.go":            "the times of a span",
	"directive/view.go":                    "whether two logs are of the same minute",
	"observe/dnstap/message.go":            "the times of a query and its reply",
	"metrics/goruntime.go":                 "a metric",
	"metrics/process.go":                   "a metric",
	"server/start.go":                      "whether two logs are of the same second",
	"directive/file/signer.go":             "times in signatures",
	"directive/internal/tsig/tsig.go":      "times in signatures",
}

func clocks(m *module) (bad []string) {
	for _, p := range m.packages {
		for _, f := range p.files {
			if _, ok := unixTimes[f.name]; ok || f.test || p.nested {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, _ := sel.X.(*ast.Ident)
				converts := x == nil || x.Name != "time" // not time.Unix
				if converts && slices.Contains([]string{"Unix", "UnixNano", "UnixMicro", "UnixMilli"}, sel.Sel.Name) {
					bad = append(bad, fmt.Sprintf("%s: %s: measure durations by package clock, or add the file to unixTimes", m.at(sel), sel.Sel.Name))
				}
				return true
			})
		}
	}
	return bad
}

// importName returns the name under which a file imports a package, or "".
func importName(f *ast.File, importPath string) string {
	for _, spec := range f.Imports {
		if spec.Path.Value == `"`+importPath+`"` {
			if spec.Name != nil {
				return spec.Name.Name
			}
			return path.Base(importPath)
		}
	}
	return ""
}

// eachDecl visits the declarations of all files, including tests.
func (m *module) eachDecl(visit func(*file, ast.Decl)) {
	for _, p := range m.packages {
		for _, f := range p.files {
			for _, d := range f.syntax.Decls {
				visit(f, d)
			}
		}
	}
}
