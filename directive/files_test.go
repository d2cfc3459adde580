package directive

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// A directive has the file NAME.go, and may have more files NAME_*.go. No other directive uses
// their unexported identifiers: what several directives use has a file of its own.
func TestDirectivesAreIndependent(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset, parsed, declared := token.NewFileSet(), map[string]*ast.File{}, map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		if parsed[file], err = parser.ParseFile(fset, file, nil, 0); err != nil {
			t.Fatal(err)
		}
		for name := range parsed[file].Scope.Objects {
			declared[name] = file
		}
	}

	own := 0
	for file, f := range parsed {
		if directiveOf(file) != "" {
			own++
		}
		for _, id := range f.Unresolved {
			owner := directiveOf(declared[id.Name])
			if !ast.IsExported(id.Name) && owner != "" && owner != directiveOf(file) {
				t.Errorf("%s: uses %s of the directive %s", fset.Position(id.Pos()), id.Name, owner)
			}
		}
	}
	if own < 40 {
		t.Errorf("got %d files of directives, want at least 40", own)
	}
}

// directiveOf returns the directive that has a file, or "" if the file is for several.
func directiveOf(file string) (name string) {
	base := strings.TrimSuffix(file, ".go")
	for _, d := range directives {
		if (base == d.Name || strings.HasPrefix(base, d.Name+"_")) && len(d.Name) > len(name) {
			name = d.Name
		}
	}
	return name
}

func TestDirectiveOfFile(t *testing.T) {
	for file, want := range map[string]string{
		"acl.go": "acl", "chaos_statistics.go": "chaos", "skydns_metrics.go": "skydns_metrics",
		"kubedns_status.go": "kubedns_status", "format.go": "", "": "",
	} {
		if got := directiveOf(file); got != want {
			t.Errorf("%q: got directive %q, want %q", file, got, want)
		}
	}
}
