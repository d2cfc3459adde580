package debian

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Users returns the tests below root that need each program: those that call Program with its
// name, themselves or through functions of their package. It follows names in the source, so
// that it needs no build.
func Users(root fs.FS) (map[string][]string, error) {
	users := map[string][]string{}
	err := fs.WalkDir(root, ".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if base := path.Base(dir); base != "." && base[0] == '.' || base == "testdata" || base == "bin" {
			return fs.SkipDir
		}

		functions, err := readTests(root, dir)
		functions.resolve()
		for _, name := range slices.Sorted(maps.Keys(functions)) {
			if strings.HasPrefix(name, "Test") {
				for program := range functions[name].needs {
					users[program] = append(users[program], dir+"."+name)
				}
			}
		}
		return err
	})
	return users, err
}

// functions are the functions of a directory's tests by name. A function has the identifiers
// in its body, and the programs of the table that it names as strings.
type functions map[string]*function

type function struct {
	identifiers map[string]bool
	named       map[string]bool
	finds       bool // it calls Program, exec.LookPath or Start of package chromium, or a function that does
	variable    bool // it is a variable of the package

	needs map[string]bool
}

// resolve sets what each function needs: the programs that it names, if it calls a function
// that finds programs, and what the functions need that it calls.
func (fs functions) resolve() {
	for changed := true; changed; {
		changed = false
		for _, f := range fs {
			finds, needs := f.finds, len(f.needs)
			for id := range f.identifiers {
				if g := fs[id]; g != nil {
					f.finds = f.finds || g.finds
					maps.Copy(f.needs, g.needs)
				}
			}

			if f.finds {
				maps.Copy(f.needs, f.named)
				for id := range f.identifiers {
					if g := fs[id]; g != nil && g.variable {
						maps.Copy(f.needs, g.named)
					}
				}
			}
			changed = changed || f.finds != finds || len(f.needs) != needs
		}
	}
}

// readTests parses the tests of a directory.
func readTests(root fs.FS, dir string) (functions, error) {
	files, err := fs.Glob(root, path.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}

	all := functions{}
	for _, name := range files {
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				all[decl.Name.Name] = read(decl)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						all[v.Names[0].Name] = read(v)
						all[v.Names[0].Name].variable = true
					}
				}
			}
		}
	}
	return all, nil
}

// read collects what the declaration of a function or a variable has.
func read(decl ast.Node) *function {
	f := &function{identifiers: map[string]bool{}, named: map[string]bool{}, needs: map[string]bool{}}
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, _ := n.X.(*ast.Ident)
			switch {
			case x == nil:
			case x.Name == "debian" && n.Sel.Name == "Program", x.Name == "exec" && n.Sel.Name == "LookPath":
				f.finds = true
			case x.Name == "chromium" && n.Sel.Name == "Start":
				f.finds, f.named["chromium"] = true, true
			}

		case *ast.Ident:
			f.identifiers[n.Name] = true

		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if _, ok := packages[text]; ok && err == nil && n.Kind == token.STRING {
				f.named[text] = true
			}
		}
		return true
	})
	return f
}
