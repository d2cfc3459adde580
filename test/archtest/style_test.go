package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
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

// A function of more than longFunction lines has at most maxRun lines without a blank line
// between them. The lines of a table, which is a composite literal, do not count.
const (
	longFunction = 40
	maxRun       = 30
)

func paragraphs(m *module) (bad []string) {
	m.eachDecl(func(f *file, d ast.Decl) {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || f.test {
			return
		}
		line := func(pos token.Pos) int { return m.fset.Position(pos).Line }
		first, last := line(fn.Body.Lbrace)+1, line(fn.Body.Rbrace)
		if last-first <= longFunction {
			return
		}

		// A line has text if a statement or a comment begins or ends there.
		text := make([]bool, last-first)
		mark := func(from, to token.Pos, value bool) {
			for l := max(line(from), first); l <= line(to) && l < last; l++ {
				text[l-first] = value
			}
		}
		for _, s := range leaves(fn.Body) {
			mark(s.Pos(), s.End(), true)
		}
		for _, c := range f.syntax.Comments {
			if c.Pos() > fn.Body.Lbrace && c.End() < fn.Body.Rbrace {
				mark(c.Pos(), c.End(), true)
			}
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if literal, ok := n.(*ast.CompositeLit); ok && line(literal.End())-line(literal.Pos()) > 1 {
				mark(literal.Pos(), literal.End(), false)
			}
			return true
		})

		run := 0
		for _, has := range text {
			if run++; !has {
				run = 0
			}
			if run > maxRun {
				bad = append(bad, fmt.Sprintf("%s: %s has more than %d lines without a blank line", m.at(fn), fn.Name.Name, maxRun))
				return
			}
		}
	})
	return bad
}

// leaves returns the tokens of a block that make its lines: what has no statement in it, and
// the ends of what has.
func leaves(block ast.Node) (all []ast.Node) {
	ast.Inspect(block, func(n ast.Node) bool {
		switch n := n.(type) {
		case nil:
		case *ast.BlockStmt:
			all = append(all, &ast.BadStmt{From: n.Lbrace, To: n.Lbrace}, &ast.BadStmt{From: n.Rbrace, To: n.Rbrace})
		case *ast.CaseClause:
			all = append(all, &ast.BadStmt{From: n.Case, To: n.Colon})
		case *ast.CommClause:
			all = append(all, &ast.BadStmt{From: n.Case, To: n.Colon})
		case *ast.Ident, *ast.BasicLit:
			all = append(all, n)
		}
		return true
	})
	return all
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
	"cluster/api/types.go":            "when an object was created",
	"cluster/snapshot/write.go":       "when a file was written",
	"directive/dnssec/message.go":     "times in signatures",
	"zone/serials.go":                 "a serial",
	"directive/file/load.go":          "times in signatures",
	"directive/etcd/answer.go":        "a serial",
	"directive/etcd/index.go":         "a serial",
	"directive/hosts/table.go":        "a metric",
	"directive/screen/answers.go":     "whether two logs are of the same second",
	"directive/secondary/save.go":     "when a primary confirmed the zone in a file",
	"directive/certificates.go":       "a metric",
	"directive/trace/otlp.go":         "the times of a span",
	"directive/trace/zipkin.go":       "the times of a span",
	"directive/view.go":               "whether two logs are of the same minute",
	"observe/dnstap/message.go":       "the times of a query and its reply",
	"metrics/goruntime.go":            "a metric",
	"metrics/process.go":              "a metric",
	"server/start.go":                 "whether two logs are of the same second",
	"directive/file/signer.go":        "times in signatures",
	"directive/internal/tsig/tsig.go": "times in signatures",
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
