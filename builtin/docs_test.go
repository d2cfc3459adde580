package builtin

import (
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// A Corefile in a doc comment begins with a server block's key.
var key = regexp.MustCompile(`^\S*[.:]\S*( \S+)* \{\n`)

// Every Corefile in the doc comments of handlers is one that check accepts.
func TestCorefilesInDocs(t *testing.T) {
	folders, err := filepath.Glob("../*")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, folder := range folders {
		texts = append(texts, corefilesIn(t, folder)...)
	}
	t.Chdir("testdata") // with the files that they name
	for _, text := range texts {
		plan(t, "a doc comment", text)
	}
	if len(texts) < len(Directives())-1 {
		t.Errorf("%d Corefiles for %d directives", len(texts), len(Directives()))
	}
}

// So is every Corefile in a document.
func TestCorefilesInDocuments(t *testing.T) {
	fence := regexp.MustCompile("(?s)```corefile\n(.*?)```")
	documents, _ := filepath.Glob("../*.md")
	more, _ := filepath.Glob("../docs/*/*.md")
	found := 0
	for _, file := range append(documents, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			found++
			plan(t, file, m[1])
		}
	}
	if found == 0 {
		t.Error("no Corefile was found")
	}
}

// plan wants a Corefile to be right. The interfaces that it names exist.
func plan(t *testing.T, where, text string) {
	t.Helper()
	blocks, err := corefile.Parse("Corefile", []byte(text))
	if err == nil {
		_, err = server.NewPlan(blocks, server.Options{
			Directives: Directives(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry),
			Interface: func(string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fe80::1%eth0")}, nil
			},
		})
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", where, err, text)
	}
}

func corefilesIn(t *testing.T, dir string) (texts []string) {
	files, err := filepath.Glob(dir + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range parsed.Comments {
			texts = append(texts, examples(group)...)
		}
	}
	return texts
}

func examples(group *ast.CommentGroup) (texts []string) {
	var p comment.Parser
	for _, block := range p.Parse(group.Text()).Content {
		if code, ok := block.(*comment.Code); ok && key.MatchString(code.Text) {
			texts = append(texts, code.Text)
		}
	}
	return texts
}
