package archtest

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// A checker type-checks the non-test files of a module. Packages of other modules
// are empty, and errors because of that are not reported.
type checker struct {
	m    *module
	info *types.Info
	std  *stdlib
	done map[string]*types.Package // packages of this module by import path; nil while being checked
}

// check type-checks a module. Several modules may share the importer std.
func check(m *module, std *stdlib) (*checker, error) {
	c := &checker{
		m: m,
		info: &types.Info{
			Types:      map[ast.Expr]types.TypeAndValue{},
			Defs:       map[*ast.Ident]types.Object{},
			Uses:       map[*ast.Ident]types.Object{},
			Selections: map[*ast.SelectorExpr]*types.Selection{},
		},
		std:  std,
		done: map[string]*types.Package{},
	}
	for _, p := range m.packages {
		c.own(p)
	}
	if len(std.problems) > 0 {
		return nil, std.problems[0]
	}
	return c, nil
}

// Import implements types.Importer.
func (c *checker) Import(importPath string) (*types.Package, error) {
	for _, p := range c.m.packages {
		if p.importPath() == importPath {
			return c.own(p), nil
		}
	}
	if standard(importPath) {
		return c.std.Import(importPath)
	}
	return opaque(importPath), nil
}

// own checks one of our packages. In an import cycle, which the compiler reports,
// it returns an empty package.
func (c *checker) own(p *pkg) *types.Package {
	importPath := p.importPath()
	if done, ok := c.done[importPath]; ok {
		if done == nil {
			return opaque(importPath)
		}
		return done
	}
	c.done[importPath] = nil
	conf := config(c)
	tp, _ := conf.Check(importPath, c.m.fset, p.source(), c.info)
	c.done[importPath] = tp
	return tp
}

// source returns the files that the compiler builds on this machine.
func (p *pkg) source() (files []*ast.File) {
	for _, f := range p.files {
		if f.built && !f.test {
			files = append(files, f.syntax)
		}
	}
	return files
}

// A stdlib imports the standard library from source, without function bodies.
type stdlib struct {
	ctx      build.Context
	done     map[string]*types.Package // by import path
	problems []error                   // errors while reading packages
}

func newStdlib() *stdlib {
	s := &stdlib{ctx: build.Default, done: map[string]*types.Package{"unsafe": types.Unsafe}}
	s.ctx.CgoEnabled = false
	if s.ctx.GOROOT == "" { // as in a test built with -trimpath
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			s.problems = append(s.problems, fmt.Errorf("go env GOROOT: %w", err))
		}
		s.ctx.GOROOT = strings.TrimSpace(string(root))
	}
	return s
}

// Import implements types.Importer.
func (s *stdlib) Import(importPath string) (*types.Package, error) {
	if done := s.done[importPath]; done != nil {
		return done, nil
	}
	dir := filepath.Join(s.ctx.GOROOT, "src", importPath)
	if !standard(importPath) { // golang.org/x/net and others, which the standard library vendors
		dir = filepath.Join(s.ctx.GOROOT, "src", "vendor", importPath)
	}
	listed, err := s.ctx.ImportDir(dir, 0)
	if err != nil {
		s.problems = append(s.problems, fmt.Errorf("reading %s: %w", importPath, err))
		return opaque(importPath), nil
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range listed.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			s.problems = append(s.problems, err)
			continue
		}
		files = append(files, f)
	}
	conf := config(s)
	conf.IgnoreFuncBodies = true
	s.done[importPath], _ = conf.Check(importPath, fset, files, nil)
	return s.done[importPath], nil
}

func opaque(importPath string) *types.Package {
	tp := types.NewPackage(importPath, path.Base(importPath))
	tp.MarkComplete()
	return tp
}

func config(importer types.Importer) types.Config {
	return types.Config{
		Importer: importer,
		Error:    func(error) {}, // go vet reports errors; continue after them
		Sizes:    types.SizesFor("gc", runtime.GOARCH),
	}
}
