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
	page.WriteString(imports)
	for _, d := range Directives() {
		says(t, d.Name)
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

// imports is the page of the one word that is no directive: it is gone when the
// Corefile has been read.
const imports = `
## import

*put a snippet or files in the place of this line*

	import SNIPPET|FILE|PATTERN

A snippet is a block whose key is a name in parentheses; it is put in wherever it is imported, inside a server block or beside one. A FILE, or the files that fit a PATTERN (` + "`" + `*` + "`" + `, ` + "`" + `?` + "`" + `, ` + "`" + `[…]` + "`" + `) in the order of their names, are read from the folder of the file that imports them. A pattern may fit no file. A Corefile may import 10,000 times, and files and snippets may import others, 50 deep.

	(common) {
	    errors
	    whoami
	}
	.:1053 {
	    import common
	    import custom/*.override
	}
	import custom/*.server

The value of an environment variable takes the place of ` + "`" + `{$NAME}` + "`" + ` and of ` + "`" + `{%NAME%}` + "`" + `, wherever it stands; there need be none. It is one word, whatever is in it.

Same as CoreDNS. Ours: a circle of imports is told by file and line.
`

// says checks that a page tells what is the same as in CoreDNS, what differs
// and what is ours.
func says(t *testing.T, name string) {
	t.Helper()
	for _, word := range []string{"\nSame as CoreDNS", "Differs from CoreDNS", "Differs: ", "Ours: "} {
		if strings.Contains("\n"+pageOf(t, name), word) {
			return
		}
	}
	t.Errorf("the page of %s does not say what is the same as in CoreDNS", name)
}

// pageOf gives the reference page of a directive: the longest doc comment in
// its file.
func pageOf(t *testing.T, name string) (page string) {
	files := []string{"../directive/" + name + ".go", "../directive/" + name + "/" + name + ".go", "../directive/" + name + "/setup.go"}
	switch name {
	case "kubernetes":
		files = []string{"../directive/kubernetes/setup.go"}
	case "kubedns_config":
		files = []string{"../directive/kubedns/setup.go"}
	case "k8s_external":
		files = []string{"../directive/kubernetes/external.go"}
	case "etcd":
		files = []string{"../directive/etcd/handler.go"}
	case "federation":
		files = []string{"../directive/kubernetes/federation.go"}
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
