package archtest

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/race"
)

// rules are the checks that need no type information.
var rules = []struct {
	name  string
	check func(*module) []string
}{
	{"imports", imports},
	{"docs", docs},
	{"names", names},
	{"sizes", sizes},
	{"paragraphs", paragraphs},
	{"inits", inits},
	{"context-values", contextValues},
	{"clocks", clocks},
}

func TestSeamark(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	race.Skip(t)
	m, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(m.packages, func(p *pkg) bool { return p.dir == "test/archtest" }) {
		t.Fatal("../.. is not the root of the module")
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { fail(t, r.check(m)) })
	}
	t.Run("types", func(t *testing.T) {
		if testing.Short() {
			t.Skip("it takes more than a second")
		}
		c, err := check(m, newStdlib())
		if err != nil {
			t.Fatal(err)
		}
		fail(t, variables(c))
	})
}

// TestDependencies checks that the documentation has a reason for each direct
// dependency.
func TestDependencies(t *testing.T) {
	root := os.DirFS("../..")
	doc, err := fs.ReadFile(root, "DEPENDENCIES.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "bench/go.mod", "kubetest/go.mod", "tools/cluster/go.mod", "tools/go.mod"} {
		mod, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		fail(t, unexplained(name, string(mod), string(doc)))
	}
}

// TestReliabilityPage checks that the tests which the page names exist.
func TestReliabilityPage(t *testing.T) {
	root := os.DirFS("../..")
	var code strings.Builder
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(root, path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"docs/explanation/reliability.md", "SECURITY.md"} {
		doc, err := fs.ReadFile(root, file)
		if err != nil {
			t.Fatal(err)
		}
		tests := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(doc), -1)
		if len(tests) == 0 {
			t.Errorf("%s names no test, want some", file)
		}
		for _, name := range tests {
			if !strings.Contains(code.String(), "\nfunc "+name[1]+"(") {
				t.Errorf("%s names the test %s, which does not exist", file, name[1])
			}
		}
	}
}

// unexplained returns the direct requirements and tools of a go.mod that doc does
// not name.
func unexplained(name, mod, doc string) (bad []string) {
	block := ""
	for line := range strings.Lines(mod) {
		words := strings.Fields(line)
		if block != "" {
			words = append([]string{block}, words...)
		}
		switch {
		case len(words) < 2:
		case words[1] == "(":
			block = words[0]
		case words[1] == ")":
			block = ""
		case words[0] != "require" && words[0] != "tool",
			strings.HasSuffix(strings.TrimSpace(line), "// indirect"),
			strings.HasPrefix(words[1], modulePath),
			strings.Contains(doc, "`"+words[1]+"`"):
		default:
			bad = append(bad, name+": "+words[1]+": DEPENDENCIES.md does not say what it is for")
		}
	}
	return bad
}

func fail(t *testing.T, bad []string) {
	t.Helper()
	for _, b := range bad {
		t.Error(b)
	}
}
