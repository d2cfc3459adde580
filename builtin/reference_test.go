package builtin

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/directives")

const referenceDir = "../docs/reference/directives"

// docs/reference/directives has one page for each directive, generated from the
// doc comment of the directive, and an index.
func TestReferencePages(t *testing.T) {
	comments := referenceComments(t)
	pages := map[string]string{"import.md": importPage}
	var index strings.Builder
	index.WriteString(indexHead)
	for _, d := range Directives() {
		text, ok := comments[d.Name]
		if !ok {
			t.Errorf("%s: no doc comment of a declaration shows the syntax of the directive in its first indented line", d.Name)
		}
		if !strings.HasPrefix(lead(d.Name, text), "The "+d.Name+" directive ") {
			t.Errorf(`%s: the doc comment does not begin with "X does something: the %[1]s directive." or "X sets up the %[1]s directive, which does something."`, d.Name)
		}
		if !comparesWithCoreDNS(text) {
			t.Errorf(`%s: the doc comment lacks a paragraph that begins with "Same as CoreDNS", "Differs" or "Ours"`, d.Name)
		}
		var parse comment.Parser
		printer := comment.Printer{HeadingLevel: 2, HeadingID: func(*comment.Heading) string { return "" }}
		pages[d.Name+".md"] = fmt.Sprintf("# %s\n\n*%s* · [all directives](README.md)\n\n%s", d.Name, d.Brief, printer.Markdown(parse.Parse(lead(d.Name, text))))
		fmt.Fprintf(&index, "| [%s](%[1]s.md) | %s |\n", d.Name, d.Brief)
	}
	pages["README.md"] = index.String()
	if *update {
		if err := os.RemoveAll(referenceDir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(referenceDir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range pages {
		file := filepath.Join(referenceDir, name)
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		} else if string(got) != want {
			t.Errorf("%s differs from the doc comment: run go test ./builtin -update", file)
		}
	}
	files, err := filepath.Glob(referenceDir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(pages) {
		t.Errorf("%d files in %s, want %d: run go test ./builtin -update", len(files), referenceDir, len(pages))
	}
}

const indexHead = `# Directives

Every directive of a Corefile, in the order in which a query passes them; the order
in the Corefile has no effect. The pages are generated from the doc comments in the
code by ` + "`go test ./builtin -update`" + `.

| directive | purpose |
|---|---|
| [import](import.md) | insert a snippet or files |
`

// importPage is the page of import, which package corefile replaces before any
// directive is set up.
const importPage = `# import

*insert a snippet or files* · [all directives](README.md)

	import SNIPPET|FILE|PATTERN

Use import to share lines between server blocks and files. A snippet is a block whose key is a name in parentheses. Its lines replace the import, inside a server block or beside one. A FILE, or the files that match a PATTERN (` + "`*`, `?`, `[...]`" + `) in the order of their names, are read relative to the directory of the importing file. A pattern may match no file. Snippets and files may contain imports, 50 deep; a Corefile may have 10,000 imports.

	(common) {
	    errors
	    whoami
	}
	.:1053 {
	    import common
	    import custom/*.override
	}
	import custom/*.server

## Environment variables

` + "`{$NAME}` and `{%NAME%}`" + ` are replaced by the value of the environment variable NAME, anywhere in a Corefile. The value is one word, whatever characters it has. A variable that is not set is replaced by nothing.

Same as CoreDNS. Ours: an import cycle is an error with file and line.
`

// lead returns a doc comment whose first sentence has the directive as its subject
// instead of the declaration.
func lead(name, text string) string {
	subject := "The " + name + " directive "
	first, rest, _ := strings.Cut(text, "\n\n")
	first = strings.ReplaceAll(first, "\n", " ")
	if _, after, ok := strings.Cut(first, "the "+name+" directive, which "); ok {
		first = subject + after
	} else if before, after, ok := strings.Cut(first, ": the "+name+" directive"); ok {
		before = strings.TrimPrefix(strings.TrimPrefix(before, "An "), "A ")
		_, predicate, _ := strings.Cut(before, " ")
		first = subject + predicate + after
	}
	return first + "\n\n" + rest
}

// comparesWithCoreDNS reports whether a doc comment has a paragraph on the
// differences from CoreDNS.
func comparesWithCoreDNS(text string) bool {
	for _, start := range []string{"\nSame as CoreDNS", "Differs from CoreDNS", "Differs: ", "Ours: "} {
		if strings.Contains("\n"+text, start) {
			return true
		}
	}
	return false
}

// referenceComments returns the doc comment of each directive: the one whose first
// indented line begins with the directive's name.
func referenceComments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../directive/*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../directive/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	comments, source := map[string]string{}, map[string]string{}
	for _, file := range append(files, more...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, text := range docComments(t, file) {
			_, after, _ := strings.Cut(text, "\n\n\t")
			fields := strings.Fields(after)
			if len(fields) == 0 || !isDirective(fields[0]) {
				continue
			}
			if other := source[fields[0]]; other != "" {
				t.Errorf("the syntax of %s is in doc comments of %s and %s", fields[0], other, file)
			}
			comments[fields[0]], source[fields[0]] = text, file
		}
	}
	return comments
}

func isDirective(name string) bool {
	for _, d := range Directives() {
		if d.Name == name {
			return true
		}
	}
	return false
}

// docComments returns the doc comments of the declarations in a file.
func docComments(t *testing.T, file string) (texts []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			texts = append(texts, d.Doc.Text())
		case *ast.GenDecl:
			texts = append(texts, d.Doc.Text())
		}
	}
	return texts
}
