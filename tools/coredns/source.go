package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// features are the plugins of a version, and their options as PLUGIN OPTION.
type features map[string]bool

func (f features) equal(other features) bool { return maps.Equal(f, other) }
func (f features) sorted() []string          { return slices.Sorted(maps.Keys(f)) }

// readSource reads the plugins in plugin.cfg of a version's sources, and the options that the
// parsers of the plugins compare tokens with.
func readSource(dir string) (features, error) {
	config, err := os.ReadFile(filepath.Join(dir, "plugin.cfg"))
	if err != nil {
		return nil, err
	}

	f := features{}
	for line := range strings.Lines(string(config)) {
		name, plugin, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}

		f[name] = true
		// Of other repositories, or of the Corefile's parser.
		if strings.Contains(plugin, "/") {
			continue
		}

		options, err := readOptions(filepath.Join(dir, "plugin", plugin))
		if err != nil {
			return nil, err
		}

		for _, o := range options {
			if o != name { // secondary, which compares its own name
				f[name+" "+o] = true
			}
		}
	}
	return f, nil
}

// readOptions returns the words that the functions of a package compare tokens of a Corefile
// with.
func readOptions(dir string) (options []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}

	var parsed []*ast.File
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}

		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}

		parsed = append(parsed, file)
	}

	words := constants(parsed)
	for _, file := range parsed {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				options = append(options, compared(f.Body, words)...)
			}
		}
	}
	return options, nil
}

// compared returns the words that the block of a function compares with a token of a Corefile:
// the result of Val of the parser, or a variable with it.
func compared(body *ast.BlockStmt, words map[string]string) (found []string) {
	tokens := map[string]bool{} // names of variables with a token
	ast.Inspect(body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, value := range a.Rhs {
				if name, ok := a.Lhs[i].(*ast.Ident); ok && isToken(value, nil) {
					tokens[name.Name] = true
				}
			}
		}
		return true
	})

	add := func(x ast.Expr) {
		if text, ok := literal(x, words); ok && isOption(text) {
			found = append(found, text)
		}
	}

	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SwitchStmt:
			if n.Tag == nil || !isToken(n.Tag, tokens) {
				return true
			}
			for _, c := range n.Body.List {
				for _, x := range c.(*ast.CaseClause).List {
					add(x)
				}
			}
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				if isToken(n.X, tokens) {
					add(n.Y)
				} else if isToken(n.Y, tokens) {
					add(n.X)
				}
			}
		}
		return true
	})

	return found
}

// isToken reports whether x is a call of Val, also in strings.ToLower, or one of the
// variables.
func isToken(x ast.Expr, variables map[string]bool) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return variables[x.Name]
	case *ast.CallExpr:
		f, ok := x.Fun.(*ast.SelectorExpr)
		if ok && f.Sel.Name == "ToLower" && len(x.Args) == 1 {
			return isToken(x.Args[0], variables)
		}
		return ok && f.Sel.Name == "Val" && len(x.Args) == 0
	}
	return false
}

// literal returns the text of a string, or of one of the constants.
func literal(x ast.Expr, words map[string]string) (text string, ok bool) {
	switch x := x.(type) {
	case *ast.Ident:
		text, ok = words[x.Name]
	case *ast.BasicLit:
		if x.Kind == token.STRING {
			var err error
			text, err = strconv.Unquote(x.Value)
			ok = err == nil
		}
	}
	return text, ok
}

// isOption reports whether a word may be the name of an option.
func isOption(word string) bool {
	for _, r := range word {
		if r != '_' && r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return false
		}
	}
	return word != ""
}
