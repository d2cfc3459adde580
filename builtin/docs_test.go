package builtin

import (
	"context"
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

var fence = regexp.MustCompile("(?s)```corefile\n(.*?)```")

// The server accepts and serves every Corefile in the documentation, and the page of each
// directive has one.
func TestCorefilesInDocuments(t *testing.T) {
	documents, _ := filepath.Glob("../*.md")
	more, _ := filepath.Glob("../docs/*/*.md")
	texts := map[string]string{}
	for _, file := range slices.Concat(documents, more) {
		texts[file] = read(t, file)
	}
	for _, d := range Directives() {
		file := filepath.Join(referenceDir, d.Name+".md")
		texts[file] = read(t, file)
		if !fence.MatchString(texts[file]) {
			t.Errorf("%s: got no Corefile, want one", file)
		}
	}
	texts["import.md"] = read(t, filepath.Join(referenceDir, "import.md"))

	t.Chdir(folder(t))
	keysForPages(t)
	for file, text := range texts {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			runs(t, file, m[1])
		}
	}
}

// keysForPages writes the keys of the page sign.
func keysForPages(t *testing.T) {
	t.Helper()
	for _, extension := range []string{".key", ".private"} {
		key := strings.ReplaceAll(read(t, "keys/Kcluster.local.+013+54969"+extension), "cluster.local", "example.org")
		if err := os.WriteFile("zones/Kexample.org.+013+54969"+extension, []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// toLoopback makes the directives of a Corefile listen on free ports of the loopback interface, and send nothing
// elsewhere.
func toLoopback(blocks []corefile.Server) {
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
}

// runs plans a Corefile and serves it on ports of the loopback interface.
func runs(t *testing.T, where, text string) {
	t.Helper()
	blocks, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		t.Errorf("%s: got error %v, want none\n%s", where, err, text)
		return
	}
	toLoopback(blocks)
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
	if got := unreached(plan.Warnings()); got != "none" {
		t.Errorf("%s: got warnings %s\n%s", where, got, text)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	plan.Stop(ended)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
