package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// maxLines is how long a file may be before it is two files. Tests are exempt:
// a table of cases is not harder to read for being long.
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

// docs wants one doc comment per package, that begins as godoc expects.
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
				bad = append(bad, fmt.Sprintf("%s: %q says nothing: name a package after what it does", p.dir, elem))
			}
		}
	}
	return bad
}

// inits refuses func init: importing a package changes nothing, so that two
// servers can live in one process.
func inits(m *module) (bad []string) {
	m.eachDecl(func(f *file, d ast.Decl) {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			bad = append(bad, fmt.Sprintf("%s: func init: do it in a function that the caller calls", m.at(d)))
		}
	})
	return bad
}

// contextValues refuses context.WithValue: a context carries cancellation, and
// what a function needs is a parameter. Modules below the root plug into
// libraries that know no other way.
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

// importName is what a file calls the package of that path, "" if it does not
// import it.
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

// eachDecl visits the declarations of all files, tests included.
func (m *module) eachDecl(visit func(*file, ast.Decl)) {
	for _, p := range m.packages {
		for _, f := range p.files {
			for _, d := range f.syntax.Decls {
				visit(f, d)
			}
		}
	}
}
