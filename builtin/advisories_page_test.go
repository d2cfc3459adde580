package builtin

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/race"
)

const advisoriesPage = "docs/reference/advisories.md"

var (
	advisory = regexp.MustCompile(`CVE-\d+-\d+|TOB-CDNS-\d+|DNS-01-\d+|coredns#\d+|NSD 4\.15`)
	testName = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
)

// Each row of the page about advisories has tests that exist, or the reason why it does not apply. Each
// advisory of a row is named by one of the row's tests, and each that tests name is on the page.
func TestAdvisoriesPage(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	race.Skip(t)
	tests, named := testsOfTree(t)
	page, rows := read(t, "../"+advisoriesPage), 0
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		ids := advisory.FindAllString(cells[0], -1)
		if !strings.HasPrefix(line, "|") || len(ids) == 0 {
			continue
		}
		rows++
		if len(cells) != 4 {
			t.Errorf("got %d columns, want 4: %s", len(cells), line)
			continue
		}

		last, text := strings.TrimSuffix(cells[3], " |"), ""
		found := testName.FindAllStringSubmatch(last, -1)
		for _, m := range found {
			if tests[m[1]] == "" {
				t.Errorf("%s: no test has the name %s", cells[0], m[1])
			}
			text += tests[m[1]]
		}
		if reason, ok := strings.CutPrefix(last, "not applicable: "); len(found) == 0 && (!ok || len(reason) < 20) {
			t.Errorf("%s: got %q, want tests, or not applicable: and the reason", cells[0], last)
		}
		for _, id := range ids {
			if len(found) > 0 && !strings.Contains(text, id) {
				t.Errorf("%s: none of its tests names %s", cells[0], id)
			}
		}
	}
	if rows < 20 {
		t.Errorf("got %d rows of advisories, too few", rows)
	}
	for id, file := range named {
		if !strings.Contains(page, id) {
			t.Errorf("%s names %s, which %s has no row for", file, id, advisoriesPage)
		}
	}
}

// testsOfTree returns the texts of all tests with their comments, by name, and the files that name an
// advisory.
func testsOfTree(t *testing.T) (tests, named map[string]string) {
	t.Helper()
	tests, named = map[string]string{}, map[string]string{}
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		data, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		for _, id := range advisory.FindAllString(string(data), -1) {
			named[id] = file
		}

		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, file, data, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				at := files.Position(f.Pos()).Offset
				tests[f.Name.Name] += f.Doc.Text() + string(data[at:files.Position(f.End()).Offset])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests, named
}
