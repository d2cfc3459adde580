package builtin

import (
	"context"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// A Corefile in a doc comment begins with a server block's key.
var key = regexp.MustCompile(`^\S*[.:]\S*( \S+)* \{\n`)

// The command check accepts every Corefile in the doc comments of handlers.
func TestCorefilesInDocs(t *testing.T) {
	folders, err := filepath.Glob("../directive/*")
	if err != nil {
		t.Fatal(err)
	}
	folders = append(folders, "../directive")
	var texts []string
	for _, folder := range folders {
		texts = append(texts, corefilesIn(t, folder)...)
	}
	t.Chdir(folder(t))
	for _, text := range texts {
		runs(t, "a doc comment", text)
	}
	if len(texts) < len(Directives())-1 {
		t.Errorf("found %d Corefiles for %d directives, want one for each", len(texts), len(Directives()))
	}
}

// Every Corefile in the documentation is accepted and served.
func TestCorefilesInDocuments(t *testing.T) {
	fence := regexp.MustCompile("(?s)```corefile\n(.*?)```")
	documents, _ := filepath.Glob("../*.md")
	more, _ := filepath.Glob("../docs/*/*.md")
	directives, _ := filepath.Glob("../docs/reference/directives/*.md")
	found := 0
	for _, file := range slices.Concat(documents, more, directives) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			found++
			runs(t, file, m[1])
		}
	}
	if found == 0 {
		t.Error("found no Corefile in the documentation")
	}
}

// runs plans a Corefile and serves it on ports of the loopback interface.
func runs(t *testing.T, where, text string) {
	t.Helper()
	blocks, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		t.Errorf("%s: got error %v, want none\n%s", where, err, text)
		return
	}
	for _, b := range blocks {
		for i := range b.Directives {
			switch d := &b.Directives[i]; d.Text {
			case "health", "ready", "prometheus", "pprof", "admin":
				d.Args = []corefile.Token{{Text: "127.0.0.1:0", File: d.File, Line: d.Line}}
			case "forward": // loop probes upstreams at the start
				for i := range d.Args[1:] {
					d.Args[1+i].Text = "127.0.0.1:1"
				}
			}
		}
	}
	plan, err := server.NewPlan(blocks, server.Options{
		Directives: withInterfaces(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry),
		Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
	})
	if err == nil {
		err = plan.Start(t.Context(), nil)
	}
	if err != nil {
		t.Errorf("%s: got error %v, want none\n%s", where, err, text)
		return
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	plan.Stop(ended)
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
