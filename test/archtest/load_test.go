package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

const modulePath = "github.com/seamark/seamark"

// A module holds all packages of the repository, including packages of nested modules.
type module struct {
	fset     *token.FileSet
	packages []*pkg // sorted by dir
}

// A pkg is one directory of Go files.
type pkg struct {
	dir    string // from the root, with slashes; "." for the root itself
	nested bool   // in a nested module
	files  []*file
}

type file struct {
	name   string // from the root
	test   bool   // *_test.go
	built  bool   // for this machine's operating system and architecture
	lines  int
	syntax *ast.File
}

// load parses every Go file under root, except in directories that the go command
// ignores.
func load(root fs.FS) (*module, error) {
	m := &module{fset: token.NewFileSet()}
	ctx := build.Default
	ctx.CgoEnabled = false // as for the server's build
	ctx.JoinPath = path.Join
	ctx.OpenFile = func(name string) (io.ReadCloser, error) { return root.Open(name) }

	byDir := map[string]*pkg{}
	var nested []string
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata") {
				return fs.SkipDir
			}
			if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil && name != "." {
				nested = append(nested, name)
			}
			return nil
		}
		if path.Ext(base) != ".go" || base[0] == '.' || base[0] == '_' {
			return nil
		}
		f, err := m.parse(&ctx, root, name)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if byDir[dir] == nil {
			byDir[dir] = &pkg{dir: dir, nested: within(nested, dir)}
			m.packages = append(m.packages, byDir[dir])
		}
		byDir[dir].files = append(byDir[dir].files, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(m.packages, func(a, b *pkg) int { return strings.Compare(a.dir, b.dir) })
	return m, nil
}

func (m *module) parse(ctx *build.Context, root fs.FS, name string) (*file, error) {
	src, err := fs.ReadFile(root, name)
	if err != nil {
		return nil, err
	}
	syntax, err := parser.ParseFile(m.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	built, err := ctx.MatchFile(path.Dir(name), path.Base(name))
	if err != nil {
		return nil, err
	}
	return &file{
		name:   name,
		test:   strings.HasSuffix(name, "_test.go"),
		built:  built,
		lines:  bytes.Count(src, []byte("\n")),
		syntax: syntax,
	}, nil
}

// importPath returns the import path of the package.
func (p *pkg) importPath() string { return path.Join(modulePath, p.dir) }

// at returns a node's file:line, for the start of a finding.
func (m *module) at(n ast.Node) string { return m.line(n.Pos()) }

func (m *module) line(pos token.Pos) string {
	p := m.fset.Position(pos)
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}
