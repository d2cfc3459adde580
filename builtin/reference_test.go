package builtin

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/directives.md")

// docs/reference/directives.md is the doc comments of the directives, so that
// neither can be true without the other.
func TestReferencePage(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Directives\n\nEvery word that a Corefile may use, in the order in which a query meets it. This\npage is made from the doc comments in the code: `go test ./builtin -update`\n")
	for _, d := range Directives() {
		fmt.Fprintf(&page, "\n## %s\n\n*%s*\n\n", d.Name, d.Brief)
		var parse comment.Parser
		printer := comment.Printer{HeadingLevel: 3, HeadingID: func(*comment.Heading) string { return "" }}
		page.Write(printer.Markdown(parse.Parse(pageOf(t, d.Name))))
	}
	const file = "../docs/reference/directives.md"
	if *update {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != page.String() {
		t.Errorf("%s is not what the doc comments say: go test ./builtin -update", file)
	}
}

// pageOf gives the reference page of a directive: the longest doc comment in
// its file.
func pageOf(t *testing.T, name string) (page string) {
	files := []string{"../handler/" + name + ".go", "../" + name + "/" + name + ".go", "../" + name + "/setup.go"}
	switch name {
	case "kubernetes":
		files = []string{"../kube/setup.go"}
	case "k8s_external":
		files = []string{"../kube/external.go"}
	}
	for _, file := range files {
		if _, err := os.Stat(file); err == nil {
			page = longest(t, file, page)
		}
	}
	return page
}

// longest gives the longest doc comment of a file if it is longer than page.
func longest(t *testing.T, file, page string) string {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		text := ""
		switch d := d.(type) {
		case *ast.FuncDecl:
			text = d.Doc.Text()
		case *ast.GenDecl:
			text = d.Doc.Text()
		}
		if len(text) > len(page) {
			page = text
		}
	}
	return page
}
